package vjetson

import (
	"context"
	"fmt"
	"testing"
	"time"
)

const cardPath = "/sys/bus/pci/drivers/vjetson_probe_card/0000:01:00.0/"

// counts reads the probe's rounds done, rounds lost with the card's process, and interrupts.
func counts(t *testing.T, m *Machine) (rounds, lost, interrupts int) {
	t.Helper()
	out, err := m.Shell(t.Context(), "cat "+cardPath+"counts")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(out, &rounds, &lost, &interrupts); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return rounds, lost, interrupts
}

func testCard(t *testing.T, k Kernel, probe string) {
	before := look(t)
	t.Cleanup(func() { leavesNothing(t, before) }) // runs after the machine's end
	m := StartTest(t, Config{Kernel: k, Card: &Card{}})
	ctx := t.Context()
	if err := m.LoadModule(ctx, probe); err != nil {
		t.Fatal(err)
	}
	t.Run("registers, DMA and MSI-X", func(t *testing.T) {
		if _, err := m.Shell(ctx, "echo 50 > "+cardPath+"rounds"); err != nil {
			t.Fatal(err)
		}
		if rounds, lost, interrupts := counts(t, m); rounds != 50 || lost != 0 || interrupts != 100 {
			t.Errorf("%d rounds, %d lost, %d interrupts, want 50, 0, 100", rounds, lost, interrupts)
		}
	})
	t.Run("1000 rounds with the process killed under way", func(t *testing.T) { killUnderWay(t, m) })
	t.Run("hot-unplug and plug", func(t *testing.T) {
		if err := m.HotUnplug(ctx); err != nil {
			t.Fatal(err)
		}
		if err := m.HotPlug(ctx); err != nil {
			t.Fatal(err)
		}
		line := "until [ -e " + cardPath + "counts ]; do usleep 10000; done; echo 10 > " + cardPath + "rounds && cat " + cardPath + "counts"
		if out, err := m.Shell(ctx, line); err != nil || out != "10 0 20\n" {
			t.Errorf("%q %v", out, err)
		}
	})
	if err := m.StartCard(ctx); err == nil {
		t.Error("a second process was started")
	}
	if _, err := m.Shell(ctx, "rmmod vjetson_probe"); err != nil {
		t.Error(err)
	}
}

func killUnderWay(t *testing.T, m *Machine) {
	const want, kills = 1000, 5
	before, _, _ := counts(t, m)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := m.Shell(ctx, fmt.Sprintf("echo %d > %srounds", want, cardPath))
		ended <- err
	}()
	for kill := range kills {
		at := want * (kill + 1) / (kills + 1)
		for rounds := 0; rounds < at; {
			rounds, _, _ = counts(t, m)
			rounds -= before
			select {
			case err := <-ended:
				t.Fatalf("ended after %d rounds: %v", rounds, err)
			case <-time.After(20 * time.Millisecond):
			}
		}
		if err := m.KillCard(); err != nil {
			t.Fatal(err)
		}
		if err := m.StartCard(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	rounds, lost, interrupts := counts(t, m)
	if rounds-before != want || lost < kills || interrupts < 2*rounds {
		t.Errorf("%d rounds, %d lost, %d interrupts, want %d, at least %d, at least 2 a round", rounds-before, lost, interrupts, want, kills)
	}
}
