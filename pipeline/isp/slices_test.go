// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// roll copies lines of from into a filling frame, a few at a time, up to line end, where it finishes with err.
func roll(f, from *pipeline.Frame, rnd *rand.Rand, end int, err error) {
	for y := 0; y < end; {
		n := min(y+1+rnd.IntN(9), end)
		copy(f.Bytes[y*f.Format.Stride:], from.Bytes[y*f.Format.Stride:min(n*f.Format.Stride, len(from.Bytes))])
		f.Arrive(n)
		y = n
		for range rnd.IntN(20) {
			runtime.Gosched()
		}
	}
	f.Finish(err)
}

// TestSlices reads the lines of outputs as they arrive, while those of the input arrive. Each line is then already
// final, and equal to that of the reference.
func TestSlices(t *testing.T) {
	cut := errors.New("cut")
	for i := range trials(400, 70) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(i), 60))
			pixel := inputs()[i%35]
			samples, _ := pixel.Samples()
			w, h := 8+8*rnd.IntN(6), 8+8*rnd.IntN(20)
			src := guardedFrame(t, format(t, pixel, w, h))
			contents[rnd.IntN(len(contents))](src.Bytes, rnd)
			c := randomConfig(rnd, samples.Bits, w, h)
			r := newReference(src, c)
			in := guardedFrame(t, src.Format)
			for k := range in.Bytes {
				in.Bytes[k] = 0xaa
			}
			var want []pipeline.Format
			var outs []*pipeline.Frame
			across, down := c.Turn.Size(w, h)
			for size := range sizes {
				if f, ok := randomOutput(rnd, outputs()[(i/35+size)%6], across>>size, down>>size); ok {
					out := guardedFrame(t, f)
					out.Fill()
					want, outs = append(want, f), append(outs, out)
				}
			}
			s := newStage(t, c)
			if err := s.Plan(src.Format, want); err != nil {
				t.Fatal(err)
			}
			end, bad := h, error(nil)
			if i%5 == 0 {
				end, bad = rnd.IntN(h), cut
			}
			in.Fill()
			var readers sync.WaitGroup
			for _, out := range outs {
				ref := bytes.Repeat([]byte{canary}, len(out.Bytes))
				r.picture(out.Format, ref)
				readers.Go(func() { readLines(t, out, ref) })
			}
			readers.Go(func() { roll(in, src, rnd, end, bad) })
			err := s.Process(context.Background(), in, outs)
			if !errors.Is(err, bad) {
				t.Errorf("%v, want %v", err, bad)
			}
			for _, out := range outs {
				out.Finish(err)
			}
			readers.Wait()
		})
	}
}

// readLines compares lines of a picture as they arrive. Those of planes with other lines are compared at the end.
func readLines(t *testing.T, out *pipeline.Frame, want []byte) {
	f := out.Format
	line := f.Stride
	if f.PacketPitch > 0 { // Stride is a line without its gaps
		line = line / (f.PacketPitch - f.HeaderGap) * f.PacketPitch
	}
	for y := 0; y < f.Height; {
		have, err := out.WaitLines(t.Context(), y+1)
		if err != nil {
			return
		}
		from, to := y*line, min(have*line, len(want))
		if i := firstDifference(out.Bytes[from:to], want[from:to]); i >= 0 && f.Pixel != pipeline.I420 && f.Pixel != pipeline.NV12 {
			t.Errorf("%s: byte %d of line %d is wrong, of %d that are there", f, i%line, (from+i)/line, have)
		}
		y = have
	}
	if i := firstDifference(out.Bytes, want); i >= 0 && out.WaitWhole(t.Context()) == nil {
		t.Errorf("%s: byte %d is wrong", f, i)
	}
}

// TestSlicesAllocateNothing checks this after the first frames.
func TestSlicesAllocateNothing(t *testing.T) {
	s := newStage(t, Config{Workers: 2, Demosaic: Malvar})
	src := frame(format(t, pipeline.RGGB10, 64, 256))
	in, outs := planned(t, s, frame(src.Format), full(pipeline.UYVY))
	rnd := rand.New(rand.NewPCG(1, 1))
	begin, rolled := make(chan bool), make(chan bool)
	go func() {
		for range begin {
			roll(in, src, rnd, src.Format.Height, nil)
			rolled <- true
		}
	}()
	defer close(begin)
	if n := testing.AllocsPerRun(100, func() {
		in.Fill()
		outs[0].Fill()
		begin <- true
		if err := s.Process(context.Background(), in, outs); err != nil {
			t.Fatal(err)
		}
		outs[0].Finish(nil)
		<-rolled
	}); n >= 1 { // at some time two workers wait at once for the first time
		t.Errorf("%v allocations a frame", n)
	}
}

// TestADamagedFrameIsNotObserved checks that a damaged frame affects neither automatic control nor the results, nor the
// next frame.
func TestADamagedFrameIsNotObserved(t *testing.T) {
	cut := errors.New("cut")
	var seen []Statistics
	s := newStage(t, Config{Workers: 2, Observe: func(st *Statistics) { seen = append(seen, *st) }})
	src := frame(format(t, pipeline.RGGB10, 64, 256))
	rnd := rand.New(rand.NewPCG(3, 1))
	contents[0](src.Bytes, rnd)
	in, outs := planned(t, s, frame(src.Format), full(pipeline.UYVY))
	for i, end := range []int{256, 200, 256, 256} { // complete; cut; damaged at its very end; complete
		bad := error(nil)
		if i == 1 || i == 2 {
			bad = cut
		}
		in.Fill()
		outs[0].Fill()
		rolled := make(chan bool)
		go func() { defer close(rolled); roll(in, src, rnd, end, bad) }()
		if err := s.Process(context.Background(), in, outs); !errors.Is(err, bad) {
			t.Errorf("frame %d: %v", i, err)
		}
		outs[0].Finish(bad)
		<-rolled
	}
	if len(seen) != 2 || seen[0].Samples != seen[1].Samples || seen[0].Histogram != seen[1].Histogram {
		t.Errorf("%d frames were observed, of two that were whole", len(seen))
	}
}
