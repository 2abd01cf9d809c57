// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// TestNewTurn checks that the first and the last sample of a frame of 3x2 are where a flip and a rotation take them. A
// vertical flip is a horizontal one and half a turn.
func TestNewTurn(t *testing.T) {
	corners := map[int][2]string{
		0: {"upper left", "upper right"}, 90: {"upper right", "lower right"}, 180: {"lower right", "lower left"}, 270: {"lower left", "upper left"},
	}
	for degrees, want := range corners {
		for i, flip := range []bool{false, true} {
			turn := NewTurn(flip, false, degrees)
			// The frame's upper left is at the start of what is not reversed, or at its end.
			across, down := turn.ReverseX, turn.ReverseY
			if turn.Transpose {
				across, down = down, across
			}
			got := map[bool]string{false: "upper ", true: "lower "}[down] + map[bool]string{false: "left", true: "right"}[across]
			if got != want[i] {
				t.Errorf("flipped %v, turned by %d: the upper left is at the %s, want %s", flip, degrees, got, want[i])
			}
			if w, h := turn.Size(3, 2); (w == 2 && h == 3) != (degrees%180 == 90) {
				t.Errorf("turned by %d: 3x2 is %dx%d", degrees, w, h)
			}
			if got, want := turn.Orientation(), map[bool][]int{false: {1, 6, 3, 8}, true: {2, 7, 4, 5}}[flip][degrees/90]; got != want {
				t.Errorf("flipped %v, turned by %d: orientation %d, want %d", flip, degrees, got, want)
			}
			if other := NewTurn(!flip, true, (degrees+180)%360); other != turn {
				t.Errorf("flipped %v, turned by %d: %+v, and both flips and half a turn more %+v", flip, degrees, turn, other)
			}
		}
	}
}

// TestTurns makes every format, plain and packet-ready, at every size in every orientation, in bands of several heights.
func TestTurns(t *testing.T) {
	for i, turn := range turns() {
		for j, pixel := range []pipeline.PixelFormat{pipeline.GRBG10, pipeline.Mono12, pipeline.BGGR8} {
			if (raced || testing.Short()) && j != i%3 {
				continue
			}
			t.Run(fmt.Sprintf("%+v/%s", turn, pixel), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				in := guardedFrame(t, format(t, pixel, 80, 48))
				contents[0](in.Bytes, rnd)
				var want []pipeline.Format
				for size := range sizes {
					w, h := turn.Size(80>>size, 48>>size)
					for _, p := range outputs() {
						f := format(t, p, w, h)
						f.Color = pipeline.Colorimetry(1 + (i+j)%4)
						want = append(want, f)
						f.HeaderGap, f.PacketPitch = 7, 7+f.Stride/2
						if f.Validate() == nil {
							want = append(want, f)
						}
					}
				}
				if len(want) < 30 {
					t.Errorf("%d formats", len(want))
				}
				c := Config{Turn: turn, Demosaic: Malvar, Gains: Gains{R: 1.5}, Sharpen: float64(j)}
				r := newReference(in, c)
				for _, c.Workers = range []int{1, 3} {
					s := newStage(t, c)
					s.pass.bandLines = []int{8, 16, 64}[rnd.IntN(3)]
					compare(t, s, r, want)
				}
			})
		}
	}
}

// BenchmarkTurn measures the orientations at 1080p with one worker.
func BenchmarkTurn(b *testing.B) {
	in := testchart(b)
	for _, p := range []pipeline.PixelFormat{pipeline.UYVY, pipeline.RGB24, pipeline.I420} {
		for _, turn := range turns() {
			b.Run(fmt.Sprintf("%s/%+v", p, turn), func(b *testing.B) {
				w, h := turn.Size(1920, 1080)
				s := newStage(b, Config{Turn: turn, Demosaic: Malvar, Workers: 1})
				out := frame(format(b, p, w, h))
				if err := s.Plan(in.Format, []pipeline.Format{out.Format}); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					if err := s.Process(b.Context(), in, []*pipeline.Frame{out}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
