// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/pipeline"
)

// Summary prints the final counts. For every output, captured = delivered + dropped, apart from frames that still wait.
// Delivered frames are those that the output has processed. Package streams reports the losses on the way to each
// receiver.
func Summary(w io.Writer, st pipeline.Stats) {
	for _, s := range st.Sources {
		events := strings.Trim(reasons(s.Report), " ()")
		fmt.Fprintf(w, "%s: captured %d, lost %d; events: %s", s.Name, s.Captured, s.Lost, cmp.Or(events, "none"))
		if s.How != "" {
			fmt.Fprintf(w, "; frames by %s", s.How)
		}
		fmt.Fprintln(w)
	}
	for _, s := range st.Stages {
		fmt.Fprintf(w, "%s: %d of %d frames, work p50 %s p99 %s, DMA done to ready p50 %s p99 %s p99.9 %s\n", s.Name, s.Delivered, s.Offered,
			MS(s.Work.P50), MS(s.Work.P99), MS(s.Latency.P50), MS(s.Latency.P99), MS(s.Latency.P999))
	}
	for _, o := range st.Outputs {
		dropped := o.Captured - o.Delivered - o.Waiting
		fmt.Fprintf(w, "%s: captured %d = delivered %d + dropped %d%s, latency p50 %s p99 %s p99.9 %s\n",
			o.Name, o.Captured, o.Delivered, dropped, reasons(o.Dropped), MS(o.Latency.P50), MS(o.Latency.P99), MS(o.Latency.P999))
	}
}

// reasons lists the non-zero counts in parentheses.
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
