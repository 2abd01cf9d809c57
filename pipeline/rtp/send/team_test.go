// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestATeamSends divides destinations among threads: each gets every packet in order, also beside one that takes nothing
// and while others come and go, and nothing remains at the end.
func TestATeamSends(t *testing.T) {
	const dests, trains = 7, 12
	var conns []*net.UDPConn
	var addrs []string
	for range dests {
		c, addr := listener(t)
		conns, addrs = append(conns, c), append(addrs, addr)
	}
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 100)
	threads := NewThreads(4)
	s := testSink(t, Config{Stream: rtp.Stream{Start: testStart()}, Destinations: addrs, Threads: threads}, f)
	want := packets(t, s, rtptest.Frame(f, 0))
	peer := stall(t, (*s.sender.dests.Load())[dests-2])
	m := &s.sender.team
	for i := range trains {
		setLoad(m, []float64{0.1, 0.9, 7, 7}[i%4]) // one thread, two, and all four
		if sendTrain(s, s.trains[0]) {
			t.Fatal("failed")
		}
		used := map[*thread]bool{}
		for _, h := range m.helpers {
			used[h.turn.thread.Load()] = true
		}
		if i == 3 && (m.shares() != 4 || len(used) != 3) {
			t.Errorf("%d shares, the helpers on %d threads", m.shares(), len(used))
		}
		if i == 5 {
			if err := s.Remove(addrs[dests-1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, c := range conns {
		n := trains * len(want)
		switch i {
		case dests - 2: // stalled
			continue
		case dests - 1: // removed after six trains
			n /= 2
		}
		got := read(t, c, n)
		if len(got) != n {
			t.Fatalf("destination %d got %d packets, want %d", i, len(got), n)
		}
		for k, p := range got {
			if !bytes.Equal(p, want[k%len(want)]) {
				t.Fatalf("destination %d: packet %d differs", i, k)
			}
		}
	}
	if st := s.Stats().Destinations[dests-2]; st.Cut != trains || st.Packets+st.Dropped != uint64(trains*len(want)) {
		t.Errorf("the stalled one: %+v", st)
	}
	_, _ = unix.Read(peer, make([]byte, 2000))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		threads.mu.Lock()
		left := len(threads.list)
		threads.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d threads remain", left)
		}
	}
	if load := threads.addLoad(0); load > 1e-9 || load < -1e-9 {
		t.Errorf("a load of %v remains", load)
	}
}

func setLoad(m *team, load float64) {
	m.threads.addLoad(load - m.load)
	m.load = load
}

// TestHelpersKeepTheSchedule checks when helpers send: with the sender, never more than maxBehind bursts without a pause
// when they are behind, and at once what has no schedule or leaves later by itself.
func TestHelpersKeepTheSchedule(t *testing.T) {
	const interval = time.Millisecond
	h := &helper{}
	now := time.Hour
	if at := h.schedule(&burst{departure: now - interval/4, interval: interval}, now); at != now-interval/4 {
		t.Errorf("a burst in time is due at %v", at-now)
	}
	late := 0
	for range 20 { // 20 bursts that were due long ago
		at := h.schedule(&burst{departure: now - time.Second, interval: interval}, now)
		if at <= now {
			late++
		}
		now = max(now, at)
	}
	if late > maxBehind+1 {
		t.Errorf("%d late bursts without a pause", late)
	}
	if took := now - time.Hour; took < 7*interval || took > 10*interval {
		t.Errorf("20 late bursts take %v, want about half an interval each", took)
	}
	for _, b := range []burst{{departure: now + time.Second}, {departure: now + time.Second, interval: interval, early: true}} {
		if at := h.schedule(&b, now); at != now {
			t.Errorf("%+v waits for %v", b, at-now)
		}
	}
}

// TestATeamGrowsAndShrinks checks how many shares a load makes.
func TestATeamGrowsAndShrinks(t *testing.T) {
	_, addr := listener(t)
	threads := NewThreads(8)
	s := testSink(t, Config{Destinations: []string{addr}, Threads: threads}, rtptest.Format(t, pipeline.UYVY, 320, 240, 100))
	m := &s.sender.team
	for _, step := range []struct {
		load         float64
		dests, after int
		shares       int
	}{
		{0.4, 50, 1, 1},
		{0.6, 50, 1, 2},
		{3.2, 50, 1, 7},
		{90, 50, 1, 8},
		{90, 3, 1, 3},
		{0.7, 3, calmTrains - 1, 3},
		{0.7, 3, 1, 2},
		{0.45, 2, 10 * calmTrains, 2}, // nearly too much for one
		{0.3, 2, calmTrains, 1},
	} {
		for range step.after {
			setLoad(m, step.load)
			m.divide(step.dests)
		}
		if m.shares() != step.shares {
			t.Fatalf("%+v: %d shares", step, m.shares())
		}
	}
}
