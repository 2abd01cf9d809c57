// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx/perftest"
)

const takerVariable = "TEGRACAST_FRAMES_TAKER"

func TestMain(m *testing.M) {
	if at := os.Getenv(takerVariable); at != "" {
		taker(at)
		return
	}
	os.Exit(m.Run())
}

// taker is another process: it receives the frames of the sender at that address until its input ends.
func taker(at string) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	r, err := Connect(ctx, ReceiverConfig{Address: at, Buffers: 16, Logger: quiet()})
	if err == nil {
		err = errors.Join(r.Run(ctx, (*pipeline.Frame).Release), r.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// BenchmarkFrames sends frames to another process as fast as it takes them, with and without CRC, and compares the rate
// with ucx_perftest, alternating: one of each per iteration (-benchtime 7x).
func BenchmarkFrames(b *testing.B) {
	if _, err := exec.LookPath("ucx_perftest"); err != nil {
		b.Skip("NEEDS ucx_perftest (Debian's ucx-utils)")
	}
	b.Setenv("UCX_NET_DEVICES", "lo")
	for _, transports := range []string{"tcp", "tcp,posix"} {
		for _, size := range []int{64 << 10, 4 << 20} {
			for _, sum := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/%dKB/CRC=%t", transports, size>>10, sum), func(b *testing.B) {
					b.Setenv("UCX_TLS", transports)
					if transports != "tcp" {
						b.Setenv("UCX_CM_USE_ALL_DEVICES", "y")
						b.Setenv("UCX_TCP_PUT_ENABLE", "n") // otherwise frames go over TCP
						b.Setenv("UCX_MM_ERROR_HANDLING", "y")
						b.Setenv("UCX_NET_DEVICES", "all")
					}
					benchmarkFrames(b, size, sum)
				})
			}
		}
	}
}

// receivers is the number of receivers that the stream has room for, an output's default. Only one connects.
const receivers = 4

func benchmarkFrames(b *testing.B, size int, sum bool) {
	server, f := serve(b), format(b, pipeline.Grey, 2048, size/2048)
	k, err := server.Stream(StreamConfig{Name: "front", Checksum: sum, Receivers: receivers}, f)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := k.Close(); err != nil {
			b.Error(err)
		}
	}()
	var slots []pipeline.Slot
	for range Holds(receivers) + 2 {
		slots = append(slots, pipeline.Slot{Bytes: make([]byte, f.Size())})
	}
	pool := pipeline.NewPool("bench", f, slots, nil)
	queue := pipeline.NewQueue(1, pipeline.Block, pipeline.NewAccount("bench", nil))
	defer takes(b, server.Addr().String())()
	await(b, "the stream", func() bool { return len(k.Stats().Receivers) == 1 })
	n := perftest.Total / size
	var c perftest.Comparison
	for range b.N {
		began := time.Now()
		for range n {
			for !ready(k) {
				runtime.Gosched() // ucx_perftest does not sleep either
			}
			k.send(queue, pool.Get())
		}
		await(b, "all frames", k.idle)
		c.Bandwidth(b, size, float64(n*size)/(1<<20)/time.Since(began).Seconds())
	}
	c.Report(b, slices.Max[[]float64], "MB/s")
}

// BenchmarkIdle measures the CPU time of a connection without frames, and that of the process without one.
func BenchmarkIdle(b *testing.B) {
	b.Setenv("UCX_TLS", "tcp")
	server, f := serve(b), format(b, pipeline.Grey, 64, 48)
	k, err := server.Stream(StreamConfig{Name: "front"}, f)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := k.Close(); err != nil {
			b.Error(err)
		}
	}()
	const span = 10 * time.Second
	share := func() float64 {
		time.Sleep(tick) // for anything that has just started
		before := perftest.OnCPU(b)
		time.Sleep(span)
		return 100 * float64(perftest.OnCPU(b)-before) / float64(span)
	}
	b.ReportMetric(share(), "%-alone")
	defer takes(b, server.Addr().String())()
	await(b, "the stream", func() bool { return len(k.Stats().Receivers) == 1 })
	b.ReportMetric(share(), "%-connected")
	b.ReportMetric(0, "ns/op")
}

// takes starts a taker, and returns a function that ends it.
func takes(b *testing.B, at string) (end func()) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), takerVariable+"="+at), os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	}
}

// ready reports whether the only receiver can take a frame.
func ready(k *Sink) bool {
	k.hub.mu.Lock()
	defer k.hub.mu.Unlock()
	return k.receivers[0].credits > 0 && k.receivers[0].room(len(k.jobs))
}
