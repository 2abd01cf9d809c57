// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// statistics implements docs/isp.md §11 on the reference's samples.
func (r *reference) statistics() *Statistics {
	s := &Statistics{}
	for y := range r.h {
		for x := range r.w {
			if x%4 >= 2 || y%4 >= 2 {
				continue
			}
			color := []int{0, 1, 1, 2}[r.channel(x, y)]
			v := r.even(x, y)
			s.Samples[color]++
			s.Histogram[color][v/256]++
			d := r.even(x+2, y)/16 - v/16
			s.Focus += uint64(d * d)
			if v >= r.light(x, y) {
				s.Clipped[color]++
				continue
			}
			z := &s.Zones[12*y/r.h][16*x/r.w]
			z.Sum[color] += uint64(v)
			z.Count[color]++
		}
	}
	return s
}

func TestStatistics(t *testing.T) {
	for i := range 60 {
		rnd := rand.New(rand.NewPCG(uint64(i), 11))
		pixel := inputs()[i%25]
		samples, _ := pixel.Samples()
		in := frame(format(t, pixel, 2+rnd.IntN(60), 2+rnd.IntN(40)))
		contents[i%len(contents)](in.Bytes, rnd)
		in.Sequence = uint64(i)
		c := randomConfig(rnd, samples.Bits, in.Format.Width, in.Format.Height)
		var got Statistics
		calls := 0
		c.Observe = func(s *Statistics) { got, calls = *s, calls+1 }
		s := newStage(t, c)
		s.pass.bandLines = 4 << rnd.IntN(3)
		if err := s.Plan(in.Format, nil); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second frame must not be affected by the first
			if err := s.Process(context.Background(), in, nil); err != nil {
				t.Fatal(err)
			}
		}
		want := newReference(in, c).statistics()
		want.Sequence = uint64(i)
		if got != *want || calls != 2 {
			t.Fatalf("case %d, %s: statistics differ from the reference: focus %d and %d, samples %v and %v, clipped %v and %v",
				i, in.Format, got.Focus, want.Focus, got.Samples, want.Samples, got.Clipped, want.Clipped)
		}
	}
}

// TestResult checks the results attached to frames, for a grey wall with a clipped corner, with and without a black
// level: half way between black and white is 0.5.
func TestResult(t *testing.T) {
	for _, black := range []int{0, 64, 400} {
		t.Run(fmt.Sprint(black), func(t *testing.T) { resultOfAWall(t, black) })
	}
}

func resultOfAWall(t *testing.T, black int) {
	var r pipeline.Result
	var s *Stage
	s = newStage(t, Config{BlackLevel: black, Observe: func(st *Statistics) { r = st.Result("isp", s.plan.levels.whites()) }})
	in := bayer(t, 64, 48, func(x, y int) uint16 {
		if x < 32 && y < 24 {
			return 1023
		}
		return uint16(black + (1024-black)/2)
	})
	if err := s.Plan(in.Format, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Process(context.Background(), in, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"red", "green", "blue"} {
		if m := r.Numbers["mean_"+c]; math.Abs(m-0.5) > 0.002 {
			t.Errorf("mean of %s is %v", c, m)
		}
		if m := r.Numbers["clipped_"+c]; m != 0.25 {
			t.Errorf("clipped share of %s is %v", c, m)
		}
	}
	if r.Stage != "isp" || r.Bins[(1024-black)/8] == 0 || r.Bins[(1023-black)/4] == 0 || len(r.Bins) != 256 {
		t.Errorf("stage %q, %d bins", r.Stage, len(r.Bins))
	}
}
