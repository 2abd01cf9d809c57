// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestBackoff checks that the delay grows with failed starts, that a successful one resets it, and that a file damaged by
// a power cut counts as no failure.
func TestBackoff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		b, kills := startsIn(dir), false
		waits := func(want ...time.Duration) {
			t.Helper()
			for i, w := range want {
				begin := time.Now()
				if !b.Begin(t.Context(), log) || time.Since(begin) != w {
					t.Errorf("start %d waited %v, want %v", i, time.Since(begin), w)
				}
				if !kills {
					b.Failed(log)
				}
			}
		}
		waits(0, 0, time.Second, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second, 30*time.Second, 30*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if b.Begin(ctx, log) {
			t.Error("it starts although it was stopped while it waited")
		}
		b.Forget()
		waits(0, 0, time.Second)
		b.Forget()
		kills = true
		waits(0, 0, time.Second, 2*time.Second, 3*time.Second, 3*time.Second)
		kills = false
		waits(3*time.Second, 32*time.Second-2*time.Second)
		b.Forget()
		for _, spoilt := range []string{"", "\x00\x00", "-3", "99999999999999999999"} {
			if err := os.WriteFile(b.file, []byte(spoilt), 0o600); err != nil {
				t.Fatal(err)
			}
			waits(0)
		}
	})
}

// TestACountThatIsNoFile checks that a path that is no regular file counts as no failures: reading a FIFO would block,
// and a device has no end.
func TestACountThatIsNoFile(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"FIFO":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"large":  func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
	} {
		b := startsIn(t.TempDir())
		if err := put(b.file); err != nil {
			t.Fatal(err)
		}
		began := make(chan bool, 1)
		go func() { began <- b.Begin(t.Context(), slog.New(slog.DiscardHandler)) }()
		select {
		case good := <-began:
			if n, _ := b.failures(); !good || n != 1 {
				t.Errorf("%s: begun %t, %d failures", name, good, n)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: the start waits", name)
		}
	}
}
