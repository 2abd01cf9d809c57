// SPDX-License-Identifier: Apache-2.0

package send

import (
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// TestExchange checks that destinations can be replaced, also by the same address under another name, and that nothing
// changes if one of the new ones cannot be used.
func TestExchange(t *testing.T) {
	f := pipeline.Format{Width: 16, Height: 4, Pixel: pipeline.UYVY, Stride: 32, Color: pipeline.BT709Limited, Rate: pipeline.Rate{Num: 30, Den: 1}}
	s, err := New(Config{Stream: rtp.Stream{Payload: rtp.Raw}, Logger: slog.New(slog.DiscardHandler)}, f)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x := s.sender
	to := func(name, addr string) Destination { return Destination{name, netip.MustParseAddrPort(addr)} }
	first, second := to("first", "127.0.0.2:5004"), to("second", "127.0.0.3:5004")
	if err := x.Exchange(nil, []Destination{first}); err != nil {
		t.Fatal(err)
	}
	before := x.dests.Load()
	if err := x.Exchange([]Destination{first}, []Destination{second, to("nobody", "255.255.255.255:5004")}); err == nil {
		t.Error("a broadcast is sent to")
	}
	if err := x.Exchange(nil, []Destination{second, to("again", "127.0.0.2:5004")}); err == nil {
		t.Error("an address is sent to twice")
	}
	if x.dests.Load() != before {
		t.Error("the destinations have changed")
	}
	for _, next := range []Destination{second, to("renamed", "127.0.0.3:5004"), to("renamed", "127.0.0.4:5004")} {
		now := *x.dests.Load()
		was := Destination{now[0].name, now[0].socket.addr}
		if err := x.Exchange([]Destination{was}, []Destination{next}); err != nil {
			t.Errorf("%v: %v", next, err)
		}
		if now := *x.dests.Load(); !slices.EqualFunc(now, []Destination{next}, func(d *destination, w Destination) bool { return d.name == w.Name && d.socket.addr == w.Addr }) {
			t.Errorf("%v: %d destinations", next, len(now))
		}
	}
}

// TestFailedDestination checks that a destination that cannot be used leaves no socket behind, however often it is
// tried.
func TestFailedDestination(t *testing.T) {
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := files()
	for range 20 {
		if _, err := newDestination(Destination{"nobody", netip.MustParseAddrPort("255.255.255.255:5004")}, Config{}.withDefaults(), 1<<16, false); err == nil {
			t.Fatal("a broadcast is sent to")
		}
	}
	if now := files(); now > before+10 {
		t.Errorf("20 failures have left %d descriptors", now-before)
	}
}
