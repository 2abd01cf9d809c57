// SPDX-License-Identifier: Apache-2.0

package share

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestFramesWaitWhileTheProcessStarts checks how long frames of a source that waits wait for a process that the program
// starts, in virtual time. Steps happen after the given times; 0: never.
func TestFramesWaitWhileTheProcessStarts(t *testing.T) {
	const start, load, far = 2 * time.Second, 10 * time.Minute, 2 * time.Hour
	for name, c := range map[string]struct {
		external                         bool // the program does not start the process
		connects, subscribes, ends, stop time.Duration
		waits                            time.Duration
	}{
		"it subscribes":                  {connects: start, subscribes: load, waits: load},
		"it ends":                        {connects: start, ends: load, waits: load + longestGap},
		"it never subscribes":            {connects: start, waits: start + longestStart},
		"it never connects":              {waits: longestStart},
		"the source ends":                {connects: start, stop: load, waits: load},
		"it has a socket":                {external: true, subscribes: load, waits: 0},
		"it subscribes and is not ready": {connects: start, subscribes: -load, waits: load + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0) // the subscribed process says nothing
			if err != nil {
				t.Fatal(err)
			}
			if c.ends == 0 { // else the sink closes it
				defer unix.Close(pair[0])
			}
			defer unix.Close(pair[1])
			synctest.Test(t, func(t *testing.T) {
				k := &Sink{connected: map[*consumer]struct{}{}, room: make([]byte, readySize+1), visits: slog.New(slog.DiscardHandler)}
				if !c.external {
					k.starts = time.Now()
				}
				p := &consumer{sink: k, fd: pair[0], credits: 1}
				after := func(d time.Duration, do func()) {
					if d > 0 {
						time.AfterFunc(d, func() { k.mu.Lock(); defer k.mu.Unlock(); do() })
					}
				}
				after(c.connects, func() { k.connected[p], k.starts = struct{}{}, time.Now() })
				after(max(c.subscribes, -c.subscribes), func() { k.consumers = append(k.consumers, p) })
				if c.subscribes < 0 {
					p.credits = 0
				}
				after(c.ends, func() { k.remove(p, bye{}) })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				after(c.stop, cancel)
				began := time.Now()
				k.awaitConsumer(ctx, time.Second)
				if d := time.Since(began); d < c.waits || d > c.waits+100*time.Millisecond {
					t.Errorf("the first frame waits for %v, not %v", d, c.waits)
				}
				if began = time.Now(); c.subscribes >= 0 && c.stop == 0 {
					k.awaitConsumer(ctx, time.Second)
					if d := time.Since(began); d > 0 {
						t.Errorf("the second frame waits for %v", d)
					}
				}
			})
		})
	}
}

// TestTheStartOfAProcess checks by connections what the stage knows of its process.
func TestTheStartOfAProcess(t *testing.T) {
	s := newUnconnected(t)
	k := s.sink.Load()
	if !k.starting() {
		t.Error("no process is expected at first")
	}
	for range 2 { // the second time at once
		theirs, err := s.Connect("a process")
		if err != nil {
			t.Fatal(err)
		}
		if !k.starting() {
			t.Error("no process is expected after it was connected")
		}
		if err := theirs.Close(); err != nil {
			t.Fatal(err)
		}
		await(t, "the stage sees that it has ended", func() bool { return !k.starting() })
	}
	theirs, err := s.Connect("a process")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Dial(t.Context(), ClientConfig{Conn: theirs, Answers: true})
	if err != nil {
		t.Fatal(err)
	}
	if k.starting() {
		t.Error("it starts, and has subscribed")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "the stage sees that it has gone", func() bool { return len(s.Stats().Consumers) == 0 })
	await(t, "none is expected", func() bool { return !k.starting() })
}
