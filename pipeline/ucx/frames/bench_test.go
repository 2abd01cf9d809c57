// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// BenchmarkFrames sends frames to a receiver of this process by UCX, as fast as it takes them, with and without CRC.
func BenchmarkFrames(b *testing.B) {
	for _, size := range []int{64 << 10, 4 << 20} {
		for _, sum := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d KB, CRC %t", size>>10, sum), func(b *testing.B) { benchmarkFrames(b, size, sum) })
		}
	}
}

func benchmarkFrames(b *testing.B, size int, sum bool) {
	server, f := serve(b), format(b, pipeline.Grey, 2048, size/2048)
	k, err := server.Stream(StreamConfig{Name: "front", Checksum: sum}, f)
	if err != nil {
		b.Fatal(err)
	}
	var slots []pipeline.Slot
	for range Holds(1) + 2 {
		slots = append(slots, pipeline.Slot{Bytes: make([]byte, f.Size())})
	}
	pool := pipeline.NewPool("bench", f, slots, nil)
	queue := pipeline.NewQueue(1, pipeline.Block, pipeline.NewAccount("bench", nil))
	r, err := Connect(b.Context(), ReceiverConfig{Address: server.Addr().String(), Buffers: 8, Unverified: !sum, Logger: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx, func(f *pipeline.Frame) { f.Release() })
	}()
	await(b, "the stream", func() bool { return len(k.Stats().Receivers) == 1 })
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for range b.N {
		for !ready(k) {
			time.Sleep(10 * time.Microsecond)
		}
		x, err := pool.Wait(ctx)
		if err != nil {
			b.Fatal(err)
		}
		k.send(queue, x)
	}
	await(b, "all frames", func() bool { return r.Stats().Frames == uint64(b.N) })
	b.StopTimer()
	cancel()
	<-ended
	if err := r.Close(); err != nil {
		b.Error(err)
	}
	if err := k.Close(); err != nil {
		b.Error(err)
	}
}

// ready says whether the only receiver can have a frame.
func ready(k *Sink) bool {
	k.hub.mu.Lock()
	defer k.hub.mu.Unlock()
	return k.receivers[0].credits > 0 && len(k.receivers[0].free) > 0
}
