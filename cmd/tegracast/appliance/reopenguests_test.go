// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// failing is an output's sink that fails on request.
type failing struct {
	pipeline.Sink
	fail chan error
}

func (f *failing) Run(ctx context.Context, q *pipeline.Queue) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var why error
	go func() {
		select {
		case why = <-f.fail:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := f.Sink.Run(ctx, q)
	if cancel(); why != nil {
		return why
	}
	return err
}

// canFail makes an output of an appliance that does not run yet fail once with the error that is sent. It is reopened
// like others while room is true.
func (s *reloads) canFail(t *testing.T, name string, room *bool) chan<- error {
	t.Helper()
	f, o := s.flows.output(name)
	o.attached.Detach(t.Context())
	want, own, err := o.config.Formats(f.source.Format())
	if err != nil {
		t.Fatal(err)
	}
	x := &failing{o.stream.sink, make(chan error)}
	o.attached, err = f.graph.Attach(pipeline.OutputConfig{
		Name: name, Sink: x, From: o.from, Format: want,
		Reopen: func(ctx context.Context) (sink pipeline.Sink, err error) {
			if err = s.requests.run(ctx, func(context.Context) (error, error) {
				if !*room {
					return errors.Join(errors.New("no room"), o.close()), nil
				}
				return nil, nil
			}); err != nil {
				return nil, err
			}
			return s.opener.builder.reopen(ctx, f, o, own)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return x.fail
}

// TestAReopenedStreamKeepsGuests checks that an RTP stream that fails and is reopened keeps the destinations that clients
// have added, and its counters and SDP file are right. While it is being reopened, a client can remove its destination, a
// reload can take it over, and no other stream can use it.
func TestAReopenedStreamKeepsGuests(t *testing.T) {
	p := rtptest.EvenPorts(t, 3)
	port := func(i int) string { return fmt.Sprint("127.0.0.1:", p[i]) }
	text := func(to string) string { return reloadConfig(t, []string{to, port(1), port(2)}, 31, 1.5, 1400) }
	kept, ended, taken := "127.0.0.1:8", "127.0.0.2:8", "127.0.0.3:8"
	s := newReloads(t, text(fmt.Sprint(port(0))), nil)
	room := true
	fail := s.canFail(t, "raw1", &room)
	s.begin(t)
	for _, to := range []string{kept, ended, taken} {
		if _, err := s.sinks.streams.Send(t.Context(), "raw1", to); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.sinks.streams.Unsend("raw1", "127.0.0.9:8"); !errors.Is(err, streams.ErrNotAsked) {
		t.Error(err)
	}
	packets := func(to string) uint64 {
		list := s.sinks.streams.Receivers()["raw1"]
		if i := slices.IndexFunc(list, func(d send.DestinationStats) bool { return d.Address == to }); i >= 0 {
			return list[i].Packets
		}
		return 0
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for began := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("not %s: %+v\n%s", what, s.sinks.streams.Receivers(), s.log.take())
			}
		}
	}
	until("sent", func() bool { return packets(kept) > 50 && packets(port(0)) > 50 })
	file := filepath.Join(s.announcer.dir, "raw1.sdp")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	room = false
	at := packets(kept)
	fail <- errors.New("it has failed")
	s.becomes(t, "raw1", pipeline.Retrying)
	until("resting", func() bool { return len(s.sinks.streams.Receivers()["raw1"]) == 0 })
	if _, err := s.sinks.streams.Send(t.Context(), "raw1", "127.0.0.4:8"); err == nil || !strings.Contains(err.Error(), "opened again") {
		t.Errorf("asked for while it cannot be sent: %v", err)
	}
	if _, err := s.sinks.streams.Send(t.Context(), "raw3", kept); err == nil || !strings.Contains(err.Error(), "destination of raw1 already") {
		t.Errorf("another stream to the same receiver: %v", err)
	}
	if err := s.sinks.streams.Unsend("raw1", ended); err != nil {
		t.Error(err)
	}
	if _, err := s.sinks.streams.Send(t.Context(), "raw3", ended); err != nil {
		t.Errorf("another stream to where this one is not sent any more: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.put(t, strings.Replace(text(port(0)), fmt.Sprintf("[%q]", port(0)), fmt.Sprintf("[%q, %q]", port(0), taken), 1))
	if err := s.requests.run(t.Context(), func(context.Context) (error, error) { room = true; return nil, nil }); err != nil {
		t.Error(err)
	}
	s.reloader.retryOutput("raw1")
	s.becomes(t, "raw1", pipeline.Running)
	if n := packets(kept); n < at {
		t.Errorf("%d packets are counted of %d and more", n, at)
	}
	until("sent again", func() bool { return packets(kept) > at+100 && packets(taken) > 0 })
	if got := s.sinks.streams.Guests("raw1"); !slices.Equal(got, []string{kept}) {
		t.Errorf("guests are %v", got)
	}
	if n := s.log.count("is lost"); n > 0 {
		t.Errorf("what a reload has taken over is lost: the log\n%s", s.log.take())
	}
	if n := packets(ended); n > 0 {
		t.Errorf("%d packets are sent where a client has ended it", n)
	}
	if err := s.sinks.streams.Unsend("raw1", kept); err != nil {
		t.Error(err)
	}
	after, err := os.ReadFile(file)
	want, err2 := s.announcer.describeStream("raw1")
	if err != nil || err2 != nil || string(after) != string(want) || len(after) == 0 {
		t.Errorf("%v, %v: the file was\n%s\nand is\n%s\nwant\n%s", err, err2, before, after, want)
	}
	s.end(t)
	if list := s.sinks.streams.Guests("raw1"); len(list) > 0 {
		t.Errorf("guests of what is closed: %v", list)
	}
}
