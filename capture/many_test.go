// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
)

// BenchmarkMany captures in slices from several 1080p60 cameras in one process, on one card or on several. It prints
// the share of a processor per camera in percent, including the model, and the number of missing frames. It checks
// nothing.
func BenchmarkMany(b *testing.B) {
	for _, n := range [][2]int{{1, 1}, {1, 2}, {2, 1}, {1, 4}, {4, 1}} {
		b.Run(fmt.Sprintf("%d-cards-of-%d", n[0], n[1]), func(b *testing.B) {
			for range b.N {
				captureMany(b, n[0], n[1])
			}
		})
	}
}

func captureMany(b *testing.B, cards, each int) {
	rate := pipeline.Rate{Num: 60, Den: 1}
	var cameras []*FPGACamera
	for range cards {
		sensor := model.SensorConfig{Width: 1920, Height: 1080, Period: rate.Period(), Readout: 15 * time.Millisecond}
		sensors := make([]model.SensorConfig, each)
		for i := range sensors {
			sensors[i] = sensor
		}
		card := newBenchOf(b, model.FaultPlan{}, nil, sensors...).card
		for i := range each {
			c, err := NewFPGACamera(FPGAConfig{
				Card: card, Number: i, Width: 1920, Height: 1080, Pixel: pipeline.RGGB10, Rate: rate, SliceLines: 32,
				Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = c.Close() })
			cameras = append(cameras, c)
		}
	}
	ctx, cancel := context.WithTimeout(b.Context(), 3*time.Second)
	defer cancel()
	var running sync.WaitGroup
	frames, missing := make([]uint64, len(cameras)), make([]uint64, len(cameras))
	begun, before := time.Now(), processorTime(b)
	for i, c := range cameras {
		running.Go(func() {
			err := c.Run(ctx, func(f *pipeline.Frame) {
				frames[i]++
				missing[i] = f.Sequence + 1 - frames[i]
				f.Release()
			})
			if err != nil {
				b.Error(err)
			}
		})
	}
	running.Wait()
	took := processorTime(b) - before
	b.ReportMetric(100*took.Seconds()/time.Since(begun).Seconds()/float64(len(cameras)), "%cpu/camera")
	var all, lost uint64
	for i := range cameras {
		all += frames[i]
		lost += missing[i]
	}
	b.ReportMetric(float64(all), "frames")
	b.ReportMetric(float64(lost), "frames-missing")
	b.ReportMetric(0, "ns/op")
}

// processorTime returns the processor time used by the process.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
