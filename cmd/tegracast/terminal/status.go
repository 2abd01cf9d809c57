// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
	"golang.org/x/sys/unix"
)

// A View is the state of an appliance.
type View struct {
	Stats      pipeline.Stats
	Addresses  []string // URLs for watching, to be copied
	Receivers  map[string][]send.DestinationStats
	Takers     map[string]string // by output: its other consumers, in words
	Loops      []string          // state of groups, of the loops for exposure and white balance, and of external stages
	Quarantine []string          // names of the kernels in quarantine
	Readers    string            // the readers' part of the status line
	Lines      string            // the part of the status line about the board's lines
}

// Status shows the state of an appliance.
type Status struct {
	out    io.Writer
	log    *slog.Logger
	look   func() View
	before pipeline.Stats
	begun  time.Time
	at     time.Time
	cpu    time.Duration
}

// NewStatus returns a Status that writes to out if that is a terminal, else to the log.
func NewStatus(out io.Writer, log *slog.Logger, look func() View) *Status {
	now := time.Now()
	return &Status{out: out, log: log, look: look, begun: now, at: now, cpu: CPUTime(), before: look().Stats}
}

// CPUTime returns the CPU time of the process.
func CPUTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Run shows the state until ctx ends.
func (s *Status) Run(ctx context.Context) {
	screen, is := s.out.(*Screen)
	terminal := Is(s.out)
	every := time.Minute
	if terminal {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if is {
				_ = screen.End() // if the terminal is gone, there is no block to remove
			}
			return
		case <-tick.C:
		}
		switch v, since := s.look(), s.since(); {
		case is:
			_ = screen.Show(s.block(v, since))
		case terminal:
			fmt.Fprintln(s.out, printable.Text(s.line(v, since)))
		default:
			s.log.Info(s.line(v, since))
		}
	}
}

// since holds the current time, the seconds since the previous update of the status, and the CPU usage in between.
type since struct {
	now     time.Time
	seconds float64
	cpu     float64 // percent of a processor
}

func (s *Status) since() since {
	now, cpu := time.Now(), CPUTime()
	seconds := now.Sub(s.at).Seconds()
	d := since{now, seconds, 100 * (cpu - s.cpu).Seconds() / seconds}
	s.at, s.cpu = now, cpu
	return d
}

// rates returns the frames per second that each source captured and each output delivered. The rate of a counter that a
// reload has set back is 0.
func (s *Status) rates(st pipeline.Stats, d since) (sources, outputs []float64) {
	rate := func(is, was uint64) float64 { return float64(is-min(is, was)) / d.seconds }
	for _, x := range st.Sources {
		var was pipeline.SourceStats
		if i := slices.IndexFunc(s.before.Sources, func(o pipeline.SourceStats) bool { return o.Name == x.Name }); i >= 0 {
			was = s.before.Sources[i]
		}
		sources = append(sources, rate(x.Captured, was.Captured))
	}
	for _, x := range st.Outputs {
		var was pipeline.OutputStats
		if i := slices.IndexFunc(s.before.Outputs, func(o pipeline.OutputStats) bool { return o.Name == x.Name }); i >= 0 {
			was = s.before.Outputs[i]
		}
		outputs = append(outputs, rate(x.Delivered, was.Delivered))
	}
	s.before = st
	return sources, outputs
}

// line returns the whole status in one line.
func (s *Status) line(v View, d since) string {
	var b strings.Builder
	b.WriteString(d.now.Format(time.TimeOnly))
	sources, outputs := s.rates(v.Stats, d)
	for i, x := range v.Stats.Sources {
		fmt.Fprintf(&b, "  %s %.1f/s lost %d", x.Name, sources[i], x.Lost)
	}
	for i, x := range v.Stats.Outputs {
		fmt.Fprintf(&b, "  | %s %.1f/s dropped %d latency %s p99 %s", x.Name, outputs[i], x.Drops(), MS(x.Latency.P50), MS(x.Latency.P99))
		if x.State == pipeline.Retrying {
			b.WriteString(" (failed; will retry)")
		}
	}
	for _, c := range v.Loops {
		fmt.Fprintf(&b, "  | %s", c)
	}
	for _, name := range v.Quarantine {
		fmt.Fprintf(&b, "  | %s in quarantine", name)
	}
	b.WriteString(v.Readers)
	b.WriteString(v.Lines)
	fmt.Fprintf(&b, "  | cpu %.0f %%", d.cpu)
	return b.String()
}

// MS formats a time in milliseconds.
func MS(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }
