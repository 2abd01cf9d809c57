// SPDX-License-Identifier: Apache-2.0

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

// Run runs ucx_perftest against itself, with the same error handling as package ucx (-e), and returns a column of its
// last line, counted from 0: 1 is the median of the latency, 5 the overall bandwidth.
func Run(b *testing.B, column int, args ...string) float64 {
	b.Helper()
	return run(b, nil, column, args...)
}

func run(b *testing.B, environment []string, column int, args ...string) float64 {
	b.Helper()
	const port = "18913"
	environment = append(os.Environ(), environment...)
	server := exec.Command("ucx_perftest", "-p", port, "-e")
	server.Env = environment
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	for range 100 { // until the server listens
		time.Sleep(50 * time.Millisecond)
		client := exec.Command("ucx_perftest", append([]string{"127.0.0.1", "-p", port, "-f", "-v", "-e"}, args...)...)
		client.Env = environment
		out, err := client.Output()
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

// bandwidth runs ucx_perftest with messages of that size, and returns the rate in MB/s (2^20 bytes). Depending on mode,
// both of its processes poll, or sleep until woken, like those of the benchmark. environment applies only to
// ucx_perftest.
func bandwidth(b *testing.B, size int, mode string, environment ...string) float64 {
	b.Helper()
	return run(b, environment, 5, "-t", "ucp_am_bw", "-E", mode, "-s", strconv.Itoa(size), "-n", strconv.Itoa(Total/size), "-w", "10")
}

// Total is the number of bytes sent for each measurement.
const Total = 1 << 30

// A Comparison holds alternating results of the benchmark and of ucx_perftest.
type Comparison struct{ ours, ratios, theirs, asleep, rendezvous []float64 }

// Add adds one result of the benchmark and one of ucx_perftest.
func (c *Comparison) Add(ours, theirs float64) {
	c.ours, c.theirs, c.ratios = append(c.ours, ours), append(c.theirs, theirs), append(c.ratios, ours/theirs)
}

// Bandwidth adds a result of the benchmark and three of ucx_perftest: polling, sleeping, and polling with rendezvous
// for all messages, as used for frames.
func (c *Comparison) Bandwidth(b *testing.B, size int, ours float64) {
	b.Helper()
	c.Add(ours, bandwidth(b, size, "poll"))
	c.asleep = append(c.asleep, ours/bandwidth(b, size, "sleep"))
	c.rendezvous = append(c.rendezvous, ours/bandwidth(b, size, "poll", "UCX_RNDV_THRESH=0"))
}

// Report reports the median ratio with its range, the ratio of the best results, which a busy machine affects least,
// and the best result of the benchmark. If Bandwidth was used, it also reports the median ratios to sleeping processes
// and to rendezvous.
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
