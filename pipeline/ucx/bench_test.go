// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/ucx/perftest"
)

const (
	window = 32 // messages in flight, as in ucx_perftest
	warm   = 10 // messages that are not measured
)

// BenchmarkBandwidth sends to another process and compares the result with ucx_perftest, alternating: one of each per
// iteration (-benchtime 7x).
func BenchmarkBandwidth(b *testing.B) {
	for _, shared := range []bool{false, true} {
		for _, size := range []int{4 << 20, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%dKB", transportName(shared), size>>10), func(b *testing.B) {
				e, _ := benchPeer(b, shared)
				var c perftest.Comparison
				for range b.N {
					c.Bandwidth(b, size, bandwidth(b, e, size, perftest.Total/size))
				}
				c.Report(b, slices.Max[[]float64], "MB/s")
			})
		}
	}
}

// BenchmarkLatency measures half a round trip of 64 bytes to another process, and compares it with ucx_perftest in its
// sleeping mode.
func BenchmarkLatency(b *testing.B) {
	for _, shared := range []bool{false, true} {
		b.Run(transportName(shared), func(b *testing.B) {
			e, w := benchPeer(b, shared)
			var c perftest.Comparison
			for range b.N {
				ours := latency(b, w, e, 5000)
				c.Add(ours, perftest.Run(b, 1, "-t", "ucp_am_lat", "-E", "sleep", "-s", "64", "-n", "5000", "-w", "100"))
			}
			c.Report(b, slices.Min[[]float64], "µs")
		})
	}
}

func transportName(shared bool) string {
	if shared {
		return "posix"
	}
	return "tcp"
}

// benchPeer starts a peer and connects to it over one transport.
func benchPeer(b *testing.B, shared bool) (*Endpoint, *Worker) {
	b.Helper()
	if _, err := exec.LookPath("ucx_perftest"); err != nil {
		b.Skip("NEEDS ucx_perftest (Debian's ucx-utils)")
	}
	b.Setenv("UCX_TLS", "posix,cma")
	b.Setenv("UCX_MM_ERROR_HANDLING", "y") // for ucx_perftest
	if !shared {
		b.Setenv("UCX_TLS", "tcp")
		os.Unsetenv("UCX_MM_ERROR_HANDLING")
		b.Setenv("UCX_NET_DEVICES", "lo")
	}
	w := worker(b, open(b))
	p := start(b)
	if !shared {
		return dial(b, w, p.addr).Endpoint, w
	}
	return meet(b, w, p).Endpoint, w
}

// bandwidth sends n messages and returns the rate in MB/s (2^20 bytes, like ucx_perftest). As there, one thread both
// sends and makes progress: the worker's goroutine.
func bandwidth(b *testing.B, e *Endpoint, size, n int) float64 {
	b.Helper()
	m := &Outgoing{ID: idSink, Data: [][]byte{mapped(b, size)}}
	var began time.Time
	finished := make(chan error, 1)
	left, free, sending := warm+n, window, false
	var done func(error)
	pump := func() {
		if sending { // called from done inside Send
			return
		}
		sending = true
		for ; left > 0 && free > 0; left, free = left-1, free-1 {
			if left == n {
				began = time.Now()
			}
			if err := e.Send(m, done); err != nil {
				finished <- err
				return
			}
		}
		sending = false
	}
	done = func(err error) {
		free++
		if err != nil {
			finished <- err
			return
		}
		if pump(); free == window && left == 0 { // all rendezvous have been fetched; the echo arrives after all eager messages
			finished <- e.Send(&Outgoing{ID: idEcho}, nil)
		}
	}
	echoes := make(chan bool, 2)
	handle(b, e.worker, idEcho, func(*Message) {
		if left > 0 {
			pump()
		} else {
			echoes <- true
		}
	})
	send(b, e, &Outgoing{ID: idEcho})
	tidy(b, next(b, finished, "end of the messages"))
	next(b, echoes, "echo")
	return float64(n*size) / (1 << 20) / time.Since(began).Seconds()
}

// latency returns the median of half a round trip in µs.
func latency(b *testing.B, w *Worker, e *Endpoint, n int) float64 {
	b.Helper()
	m := &Outgoing{ID: idEcho, Data: [][]byte{pattern(64)}, Protocol: Eager}
	times, finished := make([]time.Duration, 0, n), make(chan error, 1)
	began := time.Now()
	handle(b, w, idEcho, func(*Message) {
		now := time.Now()
		times, began = append(times, now.Sub(began)/2), now
		if len(times) == n {
			finished <- nil
		} else if err := e.Send(m, nil); err != nil {
			finished <- err
		}
	})
	if err := e.Send(m, nil); err != nil {
		b.Fatal(err)
	}
	tidy(b, next(b, finished, "end of the round trips"))
	slices.Sort(times)
	return float64(times[n/2].Nanoseconds()) / 1e3
}
