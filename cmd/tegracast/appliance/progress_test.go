// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// TestProgress checks that every part must make progress or have nothing to do, and that stalled parts are named.
func TestProgress(t *testing.T) {
	type looks = []pipeline.Stats // 2 s apart
	source := func(captured uint64, idle bool, period time.Duration) pipeline.Stats {
		return pipeline.Stats{Sources: []pipeline.SourceStats{{Name: "camera", Captured: captured, Idle: idle, Period: period}}}
	}
	stage := func(offered, delivered, dropped uint64) pipeline.Stats {
		counts := pipeline.Counts{Name: "isp", Offered: offered, Delivered: delivered, Dropped: map[string]uint64{"stage": dropped}}
		return pipeline.Stats{Stages: []pipeline.StageStats{{Counts: counts}}}
	}
	output := func(captured, waiting uint64) pipeline.Stats {
		return pipeline.Stats{Outputs: []pipeline.OutputStats{{Name: "raw", Captured: captured, Waiting: waiting}}}
	}
	ended := []pipeline.SourceStats{{Name: "camera", Captured: 1, Ended: true}}
	const frame = 33 * time.Millisecond
	for _, tt := range []struct {
		name  string
		looks looks
		want  string
	}{
		{"source moves", looks{source(1, false, frame), source(2, false, frame), source(3, false, frame)}, ""},
		{"source stalls", looks{source(1, false, frame), source(1, false, frame)}, "source camera"},
		{"source never begins", looks{source(0, false, frame), source(0, false, frame)}, "source camera"},
		{"source is idle", looks{source(1, true, frame), source(1, true, frame), source(1, true, frame)}, ""},
		{"source stalls after being idle", looks{source(1, true, frame), source(1, true, frame), source(1, false, frame)}, "source camera"},
		{"source has ended", looks{{Sources: ended}, {Sources: ended}}, ""},
		{"source is slow", looks{source(1, false, time.Second), source(1, false, time.Second)}, ""},
		{"slow source stalls", looks{source(1, false, time.Second), source(1, false, time.Second), source(1, false, time.Second)}, "source camera"},
		{"stage has nothing to do", looks{stage(5, 4, 1), stage(5, 4, 1)}, ""},
		{"stage drops", looks{stage(5, 1, 1), stage(6, 1, 2)}, ""},
		{"stage hangs", looks{stage(5, 3, 1), stage(9, 3, 1)}, "stage isp"},
		{"output has nothing to do", looks{output(5, 0), output(5, 0)}, ""},
		{"output is slow", looks{output(5, 2), output(7, 2)}, ""},
		{"output hangs", looks{output(5, 2), output(8, 5)}, "output raw"},
		{"output that is new", looks{{}, output(8, 5)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p progress
			var err error
			now := time.Unix(1e9, 0)
			for _, st := range tt.looks {
				err = p.check(st, now, 1500*time.Millisecond)
				now = now.Add(1900 * time.Millisecond)
			}
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!errors.Is(err, errStalled) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %s to stall", err, tt.want)
			}
		})
	}
}
