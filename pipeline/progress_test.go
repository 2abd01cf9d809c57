// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestProgress: every part must move or have nothing to do, and whoever does not is named.
func TestProgress(t *testing.T) {
	source := func(captured uint64, idle bool, period time.Duration) Stats {
		return Stats{Sources: []SourceStats{{Name: "camera", Captured: captured, Idle: idle, Period: period}}}
	}
	stage := func(offered, delivered, dropped uint64) Stats {
		return Stats{Stages: []StageStats{{Counts: Counts{Name: "isp", Offered: offered, Delivered: delivered, Dropped: map[string]uint64{"stage": dropped}}}}}
	}
	output := func(captured, waiting uint64) Stats {
		return Stats{Outputs: []OutputStats{{Name: "raw", Captured: captured, Waiting: waiting}}}
	}
	const frame = 33 * time.Millisecond
	for _, tt := range []struct {
		name  string
		looks []Stats // 2 s apart
		want  string
	}{
		{"source moves", []Stats{source(1, false, frame), source(2, false, frame), source(3, false, frame)}, ""},
		{"source stalls", []Stats{source(1, false, frame), source(1, false, frame)}, "source camera"},
		{"source never begins", []Stats{source(0, false, frame), source(0, false, frame)}, "source camera"},
		{"source is idle", []Stats{source(1, true, frame), source(1, true, frame), source(1, true, frame)}, ""},
		{"source stalls after being idle", []Stats{source(1, true, frame), source(1, true, frame), source(1, false, frame)}, "source camera"},
		{"source is slow", []Stats{source(1, false, time.Second), source(1, false, time.Second)}, ""},
		{"slow source stalls", []Stats{source(1, false, time.Second), source(1, false, time.Second), source(1, false, time.Second)}, "source camera"},
		{"stage has nothing to do", []Stats{stage(5, 4, 1), stage(5, 4, 1)}, ""},
		{"stage drops", []Stats{stage(5, 1, 1), stage(6, 1, 2)}, ""},
		{"stage hangs", []Stats{stage(5, 3, 1), stage(9, 3, 1)}, "stage isp"},
		{"output has nothing to do", []Stats{output(5, 0), output(5, 0)}, ""},
		{"output is slow", []Stats{output(5, 2), output(7, 2)}, ""},
		{"output hangs", []Stats{output(5, 2), output(8, 5)}, "output raw"},
		{"output that is new", []Stats{{}, output(8, 5)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p Progress
			var err error
			now := time.Unix(1e9, 0)
			for _, st := range tt.looks {
				err = p.Check(st, now, 1500*time.Millisecond)
				now = now.Add(1900 * time.Millisecond)
			}
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!errors.Is(err, ErrStalled) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %s to stall", err, tt.want)
			}
		})
	}
}
