// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"bytes"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/resolve/resolvetest"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// TestFollow checks that a stream follows its destination's name, unless the old address is still one of the name's, the
// name does not resolve, or another stream is sent to the new address.
func TestFollow(t *testing.T) {
	var addrs atomic.Pointer[[]netip.Addr]
	lead := func(to ...string) {
		var list []netip.Addr
		for _, a := range to {
			list = append(list, netip.MustParseAddr(a))
		}
		addrs.Store(&list)
	}
	lead("127.0.0.2")
	resolvetest.Answer(t, func() (dnsmessage.RCode, []netip.Addr) { return dnsmessage.RCodeSuccess, *addrs.Load() })
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	s := New(log)
	defer s.Close()
	add := func(name string, dests ...string) *send.Sink {
		sink, err := send.New(send.Config{Stream: rtp.Stream{Payload: rtp.Raw}, Destinations: dests, Logger: slog.New(slog.DiscardHandler)},
			pipeline.Format{Width: 16, Height: 4, Pixel: pipeline.UYVY, Stride: 32, Color: pipeline.BT709Limited, Rate: pipeline.Rate{Num: 30, Den: 1}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sink.Close() })
		if err := s.Add(name, sink, nil, log); err != nil {
			t.Fatal(err)
		}
		return sink
	}
	sink := add("raw", "viewer.example:5004", "127.0.0.9:5004")
	add("other", "127.0.0.5:5004")
	follow := func() (changed bool) {
		list := s.moved(t.Context())
		return len(list) > 0 && s.move(list, log)
	}
	at := func() string {
		var list []string
		for _, d := range sink.Destinations() {
			list = append(list, d.Addr.Addr().String())
		}
		slices.Sort(list)
		return strings.Join(list, " ")
	}
	for _, step := range []struct {
		leads   []string
		changed bool
		at      string
	}{
		{[]string{"127.0.0.2"}, false, "127.0.0.2 127.0.0.9"},
		{[]string{"127.0.0.3", "127.0.0.2"}, false, "127.0.0.2 127.0.0.9"},
		{[]string{"127.0.0.3"}, true, "127.0.0.3 127.0.0.9"},
		{nil, false, "127.0.0.3 127.0.0.9"},
		{[]string{"127.0.0.5"}, false, "127.0.0.3 127.0.0.9"},
		{[]string{"127.0.0.9"}, false, "127.0.0.3 127.0.0.9"},
		{[]string{"127.0.0.4"}, true, "127.0.0.4 127.0.0.9"},
	} {
		if lead(step.leads...); follow() != step.changed || at() != step.at {
			t.Errorf("%v: the stream goes to %s, want %s", step.leads, at(), step.at)
		}
	}
	if n := strings.Count(said.String(), "is sent there now"); n != 2 {
		t.Errorf("the log names %d changes, want 2:\n%s", n, said.String())
	}
}

// TestFollowAtRest checks that a client's destination of a stream that is being reopened follows its name.
func TestFollowAtRest(t *testing.T) {
	var to atomic.Pointer[netip.Addr]
	first, second := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	to.Store(&first)
	resolvetest.Answer(t, func() (dnsmessage.RCode, []netip.Addr) { return dnsmessage.RCodeSuccess, []netip.Addr{*to.Load()} })
	log := slog.New(slog.DiscardHandler)
	s := New(log)
	defer s.Close()
	open := func() *send.Sink {
		sink, err := send.New(send.Config{Stream: rtp.Stream{Payload: rtp.Raw}, Logger: log},
			pipeline.Format{Width: 16, Height: 4, Pixel: pipeline.UYVY, Stride: 32, Color: pipeline.BT709Limited, Rate: pipeline.Rate{Num: 30, Den: 1}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sink.Close() })
		if err := s.Add("raw", sink, nil, log); err != nil {
			t.Fatal(err)
		}
		return sink
	}
	open()
	if _, err := s.Send(t.Context(), "raw", "viewer.example:5004"); err != nil {
		t.Fatal(err)
	}
	s.Rest("raw")
	to.Store(&second)
	if list := s.moved(t.Context()); len(list) != 1 || !s.move(list, log) {
		t.Errorf("moved: %v", list)
	}
	if got := open().Destinations(); len(got) != 1 || got[0].Addr.Addr() != second {
		t.Errorf("sent to %v", got)
	}
}
