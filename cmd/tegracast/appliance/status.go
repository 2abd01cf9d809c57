// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/pipeline"
)

// status prints frames, drops and latency: once a second on a terminal, else once a minute to the log.
type status struct {
	out      io.Writer
	log      *slog.Logger
	look     func() view
	terminal bool
	before   pipeline.Stats
	at       time.Time
	cpu      time.Duration
}

// view is what a status line is made of.
type view struct {
	stats      pipeline.Stats
	loops      []*controller
	quarantine []string // kernels in quarantine
	readers    string
	lines      string
}

func (a *Appliance) view() view {
	return view{a.stats(), a.controllers(), a.leftOut(), a.egress.Status() + a.fanout.Status(), lines.Status(a.lines.Books())}
}

func newStatus(a *Appliance) *status {
	return &status{out: a.env.Out, log: a.env.Log, look: a.view, terminal: isTerminal(a.env.Out), at: time.Now(), cpu: cpuTime(), before: a.stats()}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// cpuTime is what the process has used so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (s *status) run(ctx context.Context) {
	every := time.Minute
	if s.terminal {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			line := s.line()
			if s.terminal {
				fmt.Fprintln(s.out, line)
			} else {
				s.log.Info(line)
			}
		}
	}
}

// line describes the time since the last one.
func (s *status) line() string {
	now, cpu, v := time.Now(), cpuTime(), s.look()
	seconds := now.Sub(s.at).Seconds()
	rate := func(is, was uint64) float64 { return float64(is-min(is, was)) / seconds } // a reload starts again at 0

	var b strings.Builder
	b.WriteString(now.Format(time.TimeOnly))
	for _, x := range v.stats.Sources {
		var was pipeline.SourceStats
		if i := slices.IndexFunc(s.before.Sources, func(o pipeline.SourceStats) bool { return o.Name == x.Name }); i >= 0 {
			was = s.before.Sources[i]
		}
		fmt.Fprintf(&b, "  %s %.1f/s lost %d", x.Name, rate(x.Captured, was.Captured), x.Lost)
	}
	for _, x := range v.stats.Outputs {
		var was pipeline.OutputStats
		if i := slices.IndexFunc(s.before.Outputs, func(o pipeline.OutputStats) bool { return o.Name == x.Name }); i >= 0 {
			was = s.before.Outputs[i]
		}
		fmt.Fprintf(&b, "  | %s %.1f/s dropped %d latency %s p99 %s", x.Name, rate(x.Delivered, was.Delivered), x.Drops(), ms(x.Latency.P50), ms(x.Latency.P99))
	}
	for _, c := range v.loops {
		fmt.Fprintf(&b, "  | %v", c)
	}
	for _, name := range v.quarantine {
		fmt.Fprintf(&b, "  | %s in quarantine", name)
	}
	b.WriteString(v.readers)
	b.WriteString(v.lines)
	fmt.Fprintf(&b, "  | cpu %.0f %%", 100*(cpu-s.cpu).Seconds()/seconds)
	s.before, s.at, s.cpu = v.stats, now, cpu
	return b.String()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

// summary prints the final books: for every output captured = delivered + dropped. Delivered is what the output has done
// its work on; what became of it on the way to each receiver is told by egress.
func summary(w io.Writer, st pipeline.Stats) {
	for _, s := range st.Sources {
		events := strings.Trim(reasons(s.Report), " ()")
		fmt.Fprintf(w, "%s: captured %d, lost %d; events: %s\n", s.Name, s.Captured, s.Lost, cmp.Or(events, "none"))
	}
	for _, s := range st.Stages {
		fmt.Fprintf(w, "%s: %d of %d frames, work p50 %s p99 %s, DMA done to ready p50 %s p99 %s p99.9 %s\n", s.Name, s.Delivered, s.Offered,
			ms(s.Work.P50), ms(s.Work.P99), ms(s.Latency.P50), ms(s.Latency.P99), ms(s.Latency.P999))
	}
	for _, o := range st.Outputs {
		dropped := o.Captured - o.Delivered - o.Waiting
		fmt.Fprintf(w, "%s: captured %d = delivered %d + dropped %d%s, latency p50 %s p99 %s p99.9 %s\n",
			o.Name, o.Captured, o.Delivered, dropped, reasons(o.Dropped), ms(o.Latency.P50), ms(o.Latency.P99), ms(o.Latency.P999))
	}
}

// reasons lists what is not zero, in parentheses.
func reasons(m map[string]uint64) string {
	var parts []string
	for k, n := range m {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", k, n))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return " (" + strings.Join(parts, ", ") + ")"
}
