// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/nats-io/nats.go"
)

// publish returns a function that publishes under a subject, as anyone may; an MQTT broker retains the message.
func publish(t *testing.T, b *broker) func(subject string, data []byte) {
	t.Helper()
	if b.scheme == "nats" {
		c, err := nats.Connect(b.url())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return func(subject string, data []byte) {
			if err := errors.Join(c.Publish(subject, data), c.Flush()); err != nil {
				t.Error(err)
			}
		}
	}
	c := mqtt.NewClient(mqtt.NewClientOptions().AddBroker(b.url()).SetClientID("stranger").SetProtocolVersion(4))
	if k := c.Connect(); k.Wait() && k.Error() != nil {
		t.Fatal(k.Error())
	}
	t.Cleanup(func() { c.Disconnect(0) })
	return func(subject string, data []byte) {
		if k := c.Publish(topic(subject), 1, true, data); k.Wait() && k.Error() != nil {
			t.Error(k.Error())
		}
	}
}

func healthOf(t *testing.T, board string, at time.Time) []byte {
	t.Helper()
	text, err := json.Marshal(Health{Head: Head{Version: Version, Board: board, At: at}, Condition: Condition{Program: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestNobodySpeaksForAnotherBoard checks that a message published under one board's subject is not taken for another
// board's.
func TestNobodySpeaksForAnotherBoard(t *testing.T) {
	everyBroker(t, func(t *testing.T, b *broker) {
		b.start(t)
		p, stop := runs(t, Config{Server: Server{URL: b.url()}, Board: "gate", Folder: t.TempDir()})
		p.Health(Condition{Program: "1.0"})
		await(t, "acknowledgement", func() bool { return p.Stats().Published == 1 })
		stop()
		say := publish(t, b)
		say("tegracast.crook.health", healthOf(t, "gate", time.Now().Add(time.Hour)))
		say("tegracast.large.health", append(healthOf(t, "large", time.Now()), make([]byte, mostHealth)...))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		list, foreign, err := Boards(ctx, Server{URL: b.url()})
		for err == nil && foreign < 2 { // some servers acknowledge what they keep before others see it
			list, foreign, err = Boards(ctx, Server{URL: b.url()})
		}
		if err != nil || foreign != 2 || len(list) != 1 || list[0].Program != "1.0" {
			t.Errorf("%+v, %d foreign, %v", list, foreign, err)
		}
	})
}

// TestBusyBus checks that boards can be listed while others publish without pause.
func TestBusyBus(t *testing.T) {
	b := mosquitto(t, "")
	b.start(t)
	say := publish(t, b)
	say("tegracast.gate.health", healthOf(t, "gate", time.Now()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan struct{})
	asking, asked := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		for n := 0; asking.Err() == nil; n++ {
			say(fmt.Sprintf("tegracast.board-%d.health", n%2), healthOf(t, fmt.Sprintf("board-%d", n%2), time.Now()))
			select {
			case <-asking.Done():
			case <-time.After(quiet / 3):
			}
		}
	}()
	within, stop := context.WithTimeout(ctx, 20*quiet)
	defer stop()
	list, _, err := Boards(within, Server{URL: b.url()})
	asked()
	<-ended
	if err != nil || !slices.ContainsFunc(list, func(h Health) bool { return h.Board == "gate" }) {
		t.Errorf("%d boards, %v", len(list), err)
	}
}

// TestBoardsAreBounded checks that a bus with too many boards yields an error together with the boards that were read.
func TestBoardsAreBounded(t *testing.T) {
	b := mosquitto(t, "allow_anonymous true\nmax_queued_messages 0\n")
	b.start(t)
	say := publish(t, b)
	for n := range mostBoards + 100 {
		say(fmt.Sprintf("tegracast.board-%d.health", n), healthOf(t, fmt.Sprintf("board-%d", n), time.Now()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if list, _, err := Boards(ctx, Server{URL: b.url()}); len(list) != mostBoards || !errors.Is(err, ErrMore) {
		t.Errorf("%d boards, %v", len(list), err)
	}
}

// TestDeadlineKeepsWhatCame checks that the boards read before the deadline are returned with the error.
func TestDeadlineKeepsWhatCame(t *testing.T) {
	b := mosquitto(t, "")
	b.start(t)
	publish(t, b)("tegracast.gate.health", healthOf(t, "gate", time.Now()))
	ctx, cancel := context.WithTimeout(t.Context(), quiet*9/10)
	defer cancel()
	if list, _, err := Boards(ctx, Server{URL: b.url()}); len(list) != 1 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d boards, %v", len(list), err)
	}
}

// TestTheFutureDoesNotWin checks that a message of the present replaces one dated in the future, whichever came first.
func TestTheFutureDoesNotWin(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		a, b time.Duration // relative to now
		want bool
	}{
		"later": {-1, -2, true}, "earlier": {-2, -1, false}, "a little ahead": {Early / 2, 0, true},
		"future": {time.Hour, -time.Hour, false}, "present": {-time.Hour, time.Hour, true}, "both": {2 * time.Hour, time.Hour, true},
	} {
		if got := newer(now.Add(tt.a), now.Add(tt.b), now); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for subject, want := range map[string]bool{"tegracast.gate.health": true, "tegracast.door.health": false, "tegracast.gate.x.health": false, "": false} {
		if _, err := parseHealth(subject, healthOf(t, "gate", now)); (err == nil) != want {
			t.Errorf("%q: %v", subject, err)
		}
	}
	if _, err := parseHealth("tegracast.a b.health", healthOf(t, "a b", now)); err == nil || !strings.Contains(err.Error(), "must be") {
		t.Errorf("%v", err)
	}
}
