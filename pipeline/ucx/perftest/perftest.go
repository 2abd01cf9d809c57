// SPDX-License-Identifier: Apache-2.0

// Package perftest compares what benchmarks reach with ucx_perftest.
package perftest

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Run runs ucx_perftest with itself, with error handling as we have it (-e), and returns a column of its last line: 1 is the median of
// the latency, 5 the whole bandwidth.
func Run(b *testing.B, column int, args ...string) float64 {
	b.Helper()
	const port = "18913"
	server := exec.Command("ucx_perftest", "-p", port, "-e")
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	for range 100 { // until it listens
		time.Sleep(50 * time.Millisecond)
		out, err := exec.Command("ucx_perftest", append([]string{"127.0.0.1", "-p", port, "-f", "-v", "-e"}, args...)...).Output()
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		columns := strings.Split(lines[len(lines)-1], ",")
		if v, err := strconv.ParseFloat(columns[min(column, len(columns)-1)], 64); err == nil {
			return v
		}
		b.Fatalf("ucx_perftest says %q", out)
	}
	b.Fatal("ucx_perftest does not run")
	return 0
}

// Bandwidth runs ucx_perftest with messages of that size, and returns MB/s (2^20 bytes). Both of its processes poll; one that sleeps is
// woken when something comes, as ours are.
func Bandwidth(b *testing.B, size int, sleeps bool) float64 {
	b.Helper()
	mode := "poll"
	if sleeps {
		mode = "sleep"
	}
	return Run(b, 5, "-t", "ucp_am_bw", "-E", mode, "-s", strconv.Itoa(size), "-n", strconv.Itoa(Total/size), "-w", "10")
}

// Total is how many bytes a turn sends.
const Total = 1 << 30

// A Comparison is what both have reached, in turn.
type Comparison struct{ ours, ratios, theirs, asleep, rendezvous []float64 }

// Add adds a turn of both.
func (c *Comparison) Add(ours, theirs float64) {
	c.ours, c.theirs, c.ratios = append(c.ours, ours), append(c.theirs, theirs), append(c.ratios, ours/theirs)
}

// Bandwidth adds a turn of ours and of ucx_perftest: one that polls, one that sleeps, and one that polls and sends by rendezvous what it
// would send at once, as frames go.
func (c *Comparison) Bandwidth(b *testing.B, size int, ours float64) {
	b.Helper()
	c.Add(ours, Bandwidth(b, size, false))
	c.asleep = append(c.asleep, ours/Bandwidth(b, size, true))
	b.Setenv("UCX_RNDV_THRESH", "0")
	c.rendezvous = append(c.rendezvous, ours/Bandwidth(b, size, false))
	os.Unsetenv("UCX_RNDV_THRESH")
}

// Report prints the median ratio with its spread, that of the best of both, which a busy machine harms least, and the best of ours.
func (c *Comparison) Report(b *testing.B, best func([]float64) float64, unit string) {
	slices.Sort(c.ratios)
	b.ReportMetric(c.ratios[len(c.ratios)/2], "ratio")
	b.ReportMetric(c.ratios[0], "ratio-min")
	b.ReportMetric(c.ratios[len(c.ratios)-1], "ratio-max")
	b.ReportMetric(best(c.ours)/best(c.theirs), "ratio-best")
	b.ReportMetric(best(c.ours), unit)
	if n := len(c.asleep); n > 0 {
		slices.Sort(c.asleep)
		b.ReportMetric(c.asleep[n/2], "ratio-asleep")
		slices.Sort(c.rendezvous)
		b.ReportMetric(c.rendezvous[n/2], "ratio-rendezvous")
	}
	b.ReportMetric(0, "ns/op")
}
