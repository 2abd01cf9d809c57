// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// block returns the whole status as lines.
func (s *Status) block(v View, d since) (list []Line) {
	for _, a := range v.Addresses {
		list = append(list, Line{Text: a, Whole: true})
	}
	width := len("output")
	for _, x := range v.Stats.Sources {
		width = max(width, len(x.Name))
	}
	for _, x := range v.Stats.Outputs {
		width = max(width, len(x.Name))
	}
	sources, outputs := s.rates(v.Stats, d)
	list = append(list, Line{Text: fmt.Sprintf("%-*s  frames/s     lost  latency p50, p99   receivers", width, "")})
	for i, x := range v.Stats.Sources {
		text := fmt.Sprintf("%-*s  %8.1f %8d", width, x.Name, sources[i], x.Lost)
		if x.Ended {
			text += "  ended"
		}
		list = append(list, Line{Text: text, Bad: x.Lost > 0})
	}
	for i, x := range v.Stats.Outputs {
		who, bad := receivers(v.Receivers[x.Name])
		who = cmp.Or(who, v.Takers[x.Name])
		if x.State == pipeline.Retrying {
			who, bad = "failed; will retry: "+strings.ReplaceAll(x.Error, "\n", "; "), true
		}
		text := fmt.Sprintf("%-*s  %8.1f %8d  %6.1f, %6.1f ms  %s", width, x.Name, outputs[i], x.Drops(),
			float64(x.Latency.P50)/1e6, float64(x.Latency.P99)/1e6, who)
		list = append(list, Line{Text: strings.TrimRight(text, " "), Bad: bad || x.Drops() > 0})
	}
	for _, c := range v.Loops {
		list = append(list, Line{Text: c})
	}
	for _, name := range v.Quarantine {
		list = append(list, Line{Text: name + " is in quarantine", Bad: true})
	}
	if v.Lines != "" {
		list = append(list, Line{Text: strings.TrimPrefix(v.Lines, "  | ")})
	}
	return append(list, Line{Text: fmt.Sprintf("%s since the start, %.0f %% of a processor; ctrl-C ends", d.now.Sub(s.begun).Round(time.Second), d.cpu)})
}

// receivers describes the receivers of a stream, and reports whether any of them loses something.
func receivers(all []send.DestinationStats) (string, bool) {
	var list []string
	bad, readers, lost := false, 0, uint64(0)
	for _, d := range all {
		if d.Reader != "" {
			readers++
			lost += d.Cut
			continue
		}
		text := d.Address
		r, reports := d.LastReport()
		switch {
		case d.Trouble == send.NobodyListens:
			text, bad = text+": nobody listens", true
		case d.LastError != "":
			text, bad = text+": "+d.LastError, true
		case reports && r.FractionLost > 0:
			text, bad = fmt.Sprintf("%s loses %.1f %%", text, 100*r.FractionLost), true
		}
		list = append(list, text)
	}
	switch {
	case readers == 1:
		list = append(list, fmt.Sprintf("1 reader, lost %d", lost))
	case readers > 1:
		list = append(list, fmt.Sprintf("%d readers, lost %d", readers, lost))
	}
	bad = bad || lost > 0
	return strings.Join(list, "; "), bad
}
