// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// TestAReloadTakesGuestsOver checks that a destination that a client has added, and that the new configuration also has,
// becomes the configuration's, for the same stream or another.
func TestAReloadTakesGuestsOver(t *testing.T) {
	p := rtptest.EvenPorts(t, 4)
	port := func(i int) string { return fmt.Sprint("127.0.0.1:", p[i]) }
	text := func(to string) string {
		return reloadConfig(t, []string{port(0), port(1), port(2)}, 31, 1.5, 1400) +
			"  - {name: many, from: isp2, rtp: {payload: raw, destinations: [" + to + "]}}\n"
	}
	first, own, others, left := port(3), "127.0.0.1:8", "127.0.0.2:8", "127.0.0.3:8"
	s := startReloads(t, text(fmt.Sprintf("%q", first)))
	for _, x := range []struct{ stream, to string }{{"many", own}, {"raw1", others}, {"many", left}} {
		if _, err := s.sinks.streams.Send(t.Context(), x.stream, x.to); err != nil {
			t.Fatal(err)
		}
	}
	s.log.take()
	s.put(t, text(fmt.Sprintf("%q, %q, %q", first, own, others)))
	if log := s.log.take(); !strings.Contains(log, "configuration reloaded") {
		t.Errorf("the log:\n%s", log)
	}
	sent := func(name string) (list []string) {
		for _, d := range s.stream(t, name).sink.Stats().Destinations {
			list = append(list, d.Address)
		}
		slices.Sort(list)
		return list
	}
	want := []string{first, own, others, left}
	slices.Sort(want)
	if got := sent("many"); !slices.Equal(got, want) {
		t.Errorf("sent to %v, want %v", got, want)
	}
	if got := sent("raw1"); slices.Contains(got, others) {
		t.Errorf("the other stream is still sent to %v", got)
	}
	if got := s.sinks.streams.Guests("many"); !slices.Equal(got, []string{left}) {
		t.Errorf("guests are %v", got)
	}
	if err := s.sinks.streams.Unsend("many", own); !errors.Is(err, streams.ErrNotAsked) {
		t.Errorf("a client ends what the configuration has: %v", err)
	}
	s.end(t)
}

// TestAReloadThatFailsKeepsGuests checks that the destinations that clients have added continue, and stay theirs, if a
// new configuration cannot be opened. An output that a reload opens may use a destination that a client had added to
// another one.
func TestAReloadThatFailsKeepsGuests(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p := rtptest.EvenPorts(t, 5)
	port := func(i int) string { return fmt.Sprint("127.0.0.1:", p[i]) }
	text := func(outputs, more string) string {
		return reloadConfig(t, []string{port(0), port(1), port(2)}, 31, 1.5, 1400) + outputs + more
	}
	many := func(to string) string {
		return "  - {name: many, from: isp2, rtp: {payload: raw, destinations: [" + to + "]}}\n"
	}
	first, own, others := port(3), "127.0.0.1:8", port(4)
	s := startReloads(t, text(many(fmt.Sprintf("%q", first)), ""))
	for _, x := range []struct{ stream, to string }{{"many", own}, {"raw1", others}} {
		if _, err := s.sinks.streams.Send(t.Context(), x.stream, x.to); err != nil {
			t.Fatal(err)
		}
	}
	s.put(t, text(many(fmt.Sprintf("%q, %q", first, own)), fmt.Sprintf("rtsp: {listen: %q}\n", taken.Addr())))
	s.put(t, text(many(fmt.Sprintf("%q", first)), "")) // it has returned to the previous configuration
	if log := s.log.take(); !strings.Contains(log, "going back") || !strings.Contains(log, "has not changed") {
		t.Fatalf("the log:\n%s", log)
	}
	for stream, to := range map[string]string{"many": own, "raw1": others} {
		if got := s.sinks.streams.Guests(stream); !slices.Equal(got, []string{to}) {
			t.Errorf("guests of %s are %v, want %s", stream, got, to)
		}
		if !slices.ContainsFunc(s.stream(t, stream).sink.Stats().Destinations, func(d send.DestinationStats) bool { return d.Address == to }) {
			t.Errorf("%s is not sent to %s any more", stream, to)
		}
	}
	s.put(t, text(many(fmt.Sprintf("%q", first))+strings.Replace(many(fmt.Sprintf("%q", others)), "many", "fresh", 1), ""))
	if got := s.sinks.streams.Guests("raw1"); len(got) > 0 {
		t.Errorf("a receiver gets two streams: guests are %v", got)
	}
	s.end(t)
}
