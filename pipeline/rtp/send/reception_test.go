// SPDX-License-Identifier: Apache-2.0

package send

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestReception checks, at rates from 60 frames a second to one a minute, that the trouble of a host without a receiver
// lasts, whichever of its trains it refuses, that it ends when there is one, and that a network that takes most frames is
// none.
func TestReception(t *testing.T) {
	const refused, late, away, cut, slow = 'r', 'l', 'a', 'c', 's' // during the train, when the next begins; given up
	for _, c := range []struct {
		name   string
		period time.Duration
		trains string
		want   unix.Errno
	}{
		{"nobody, of 60 frames a second one is refused", time.Second / 60, "c" + strings.Repeat("w", 59) + "c" + strings.Repeat("w", 59), unix.ECONNREFUSED},
		{"nobody, every other frame", time.Second / 5, "cwcwcwcw", unix.ECONNREFUSED},
		{"nobody, a small frame a minute", time.Minute, "wlll", unix.ECONNREFUSED},
		{"nobody, refused during a small frame or later", time.Minute, "wrrwlrwl", unix.ECONNREFUSED},
		{"no host, a small frame each five seconds", 5 * time.Second, "waaaa", unix.EHOSTUNREACH},
		{"a receiver, 60 frames a second", time.Second / 60, "cwcw" + strings.Repeat("w", 200), 0},
		{"a receiver, a frame a minute", time.Minute, "cllw", 0},
		{"a network that is slow at times", time.Second / 60, strings.Repeat("swss", 100), 0},
		{"a network that is too slow", time.Second / 60, "w" + strings.Repeat("s", 200), unix.EAGAIN},
	} {
		d, now := destination{}, time.Now()
		for i, train := range c.trains {
			d.got.spoilt, d.progress.next = false, 0
			switch train {
			case late:
				d.answered(unix.ECONNREFUSED)
			case away:
				d.answered(unix.EHOSTUNREACH)
			}
			d.progress.next = 10
			if train == refused {
				d.answered(unix.ECONNREFUSED)
			}
			now = now.Add(c.period)
			switch train {
			case cut:
				d.got.lost(unix.ECONNREFUSED, now)
			case slow:
				d.got.lost(unix.EAGAIN, now)
			default:
				d.got.sent(now)
			}
			if seen := d.got.trouble(now.Add(c.period)); c.want == unix.ECONNREFUSED && i > 1 && seen != c.want {
				t.Errorf("%s: train %d: %v", c.name, i, seen)
			}
		}
		if got := d.got.trouble(now.Add(c.period)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestTroubleLasts checks that the trouble of a destination at which nobody listens is the same after each frame.
func TestTroubleLasts(t *testing.T) {
	a, addr := listener(t)
	_ = a.Close()
	for _, height := range []int{240, 2} { // of many packets, and of two
		f := rtptest.Format(t, pipeline.UYVY, 320, height, 100)
		s := testSink(t, Config{Destinations: []string{addr}}, f)
		for n := range 20 {
			send(t, s, rtptest.Frame(f, n))
			if st := s.Stats().Destinations[0]; n > 1 && st.Trouble != NobodyListens {
				t.Errorf("%d lines, frame %d: %+v", height, n, st)
			}
		}
	}
}
