// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/report"
)

// processor returns the CPU time that this process has used.
func processor() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bursts calls f count times, at 10,000 calls a second: 50 together every 5 ms, the way results of frames arrive. It
// returns the elapsed and the CPU time.
func bursts(count int, f func(n int)) (took, cpu time.Duration) {
	begin, before := time.Now(), processor()
	for n := range count {
		if n%50 == 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(n) * 100 * time.Microsecond)))
		}
		f(n)
	}
	return time.Since(begin), processor() - before
}

// BenchmarkTenThousand publishes 10,000 messages a second to a server in another process and reports which share of a
// core this process needs, including JSON and acknowledgements: go test -run '^$' -bench TenThousand -benchtime 100000x
// ./pipeline/bus
//
// The benchmark wakes up 200 times a second to publish something. pacing-%core is the share that this alone takes; it
// is part of %core. A program that publishes results is awake at these times anyway.
func BenchmarkTenThousand(b *testing.B) {
	r := report.Report{Frame: 1 << 20, Captured: time.Now(), Results: []pipeline.Result{{
		Stage: "detector", Regions: []pipeline.Region{{X: 100, Y: 200, Width: 64, Height: 48, Label: "car", Score: 0.87}}, Numbers: map[string]float64{"count": 1},
	}}}
	for name, make := range map[string]func(testing.TB) *broker{"nats": debianNATS, "mqtt": func(t testing.TB) *broker { return mosquitto(t, "") }} {
		b.Run(name, func(b *testing.B) {
			server := make(b)
			server.start(b)
			alone, pacing := bursts(20000, func(int) {})
			p, stop := runs(b, Config{Server: Server{URL: server.url()}, Board: "a", Folder: b.TempDir()})
			await(b, "link", func() bool { return p.Stats().Connected })
			b.ResetTimer()
			begin, cpu := time.Now(), processor()
			bursts(b.N, func(n int) {
				r.Frame = uint64(n)
				if err := p.Results("numbers", r); err != nil {
					b.Fatal(err)
				}
			})
			await(b, "acknowledgement", func() bool { return p.Stats().Published == uint64(b.N) })
			took, used := time.Since(begin), processor()-cpu
			b.StopTimer()
			stop()
			if st := p.Stats(); st.Full+st.Failed+st.Refused > 0 {
				b.Errorf("%+v", st)
			}
			b.ReportMetric(100*used.Seconds()/took.Seconds(), "%core")
			b.ReportMetric(100*pacing.Seconds()/alone.Seconds(), "pacing-%core")
			b.ReportMetric(float64(b.N)/took.Seconds(), "messages/s")
			b.ReportMetric(float64(used.Microseconds())/float64(b.N), "µs-cpu/message")
		})
	}
}
