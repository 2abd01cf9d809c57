// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"math/bits"

	"github.com/tegracast/tegracast/pipeline"
)

// ZoneColumns and ZoneRows are the numbers of columns and rows of zones into which the frame is divided.
const (
	ZoneColumns = 16
	ZoneRows    = 12
)

// A Zone holds the sums and numbers of the samples that are not clipped, by colour: red, green, blue.
type Zone struct {
	Sum   [3]uint64
	Count [3]uint32
}

// Statistics describe the samples of a frame after black level, defect correction and lens shading correction and
// before the white balance, on a scale on which white is 65535 for a sensor without a black level. They include every
// second quad in both directions. A monochrome sensor has only green. docs/isp.md §11.
type Statistics struct {
	Sequence  uint64
	Times     pipeline.Times
	Zones     [ZoneRows][ZoneColumns]Zone
	Histogram [3][256]uint32 // number of samples, by colour and by the upper 8 bits of a sample
	Clipped   [3]uint32      // samples not below the value of a saturated one (Recipe.Light)
	Samples   [3]uint32      // all samples that are included
	Focus     uint64         // sum of the squared differences, in units of 16, of neighbours of the same colour in a line
}

// Mean returns the mean of all samples of a colour (0 red, 1 green, 2 blue) that are not clipped, from 0 to 65535, or 0
// if there are none.
func (s *Statistics) Mean(color int) float64 {
	var sum, count float64
	for y := range s.Zones {
		for x := range s.Zones[y] {
			sum, count = sum+float64(s.Zones[y][x].Sum[color]), count+float64(s.Zones[y][x].Count[color])
		}
	}
	return sum / max(count, 1)
}

// Result returns the statistics in the form that is attached to frames: by colour the mean of the samples that are not
// clipped, 0 for black to 1 for white, and the clipped share, 0 to 1; the focus per sample, and the histogram of green.
// whites are the values of saturated samples by colour (Recipe.White). It allocates.
func (s *Statistics) Result(stage string, whites [3]int) pipeline.Result {
	n := map[string]float64{"focus": float64(s.Focus) / float64(max(s.Samples[0]+s.Samples[1]+s.Samples[2], 1))}
	for c, name := range []string{"red", "green", "blue"} {
		if s.Samples[c] > 0 {
			n["mean_"+name] = s.Mean(c) / float64(whites[c])
			n["clipped_"+name] = float64(s.Clipped[c]) / float64(s.Samples[c])
		}
	}
	return pipeline.Result{Stage: stage, Numbers: n, Bins: append([]uint32{}, s.Histogram[1][:]...)}
}

// add adds the statistics of another worker.
func (s *Statistics) add(t *Statistics) {
	for y := range s.Zones {
		for x := range s.Zones[y] {
			z, u := &s.Zones[y][x], &t.Zones[y][x]
			for c := range z.Sum {
				z.Sum[c] += u.Sum[c]
				z.Count[c] += u.Count[c]
			}
		}
	}
	for c := range s.Histogram {
		for i, n := range t.Histogram[c] {
			s.Histogram[c][i] += n
		}
		s.Clipped[c] += t.Clipped[c]
		s.Samples[c] += t.Samples[c]
	}
	s.Focus += t.Focus
}

// observed reports whether line y is included in the statistics.
func observed(y int) bool { return y&3 < 2 }

// line adds line y of w x h samples, with mirrored margins, to the statistics.
func (s *Statistics) line(row line, y, w, h int, l *levels) {
	channels := l.channels(y)
	for phase, channel := range channels {
		color := [4]int{0, 1, 1, 2}[channel]
		light := uint16(l.light[channel])
		zones := &s.Zones[y*ZoneRows/h]
		hist := &s.Histogram[color]
		var clipped, samples uint32
		x := phase
		for i := range zones {
			zone := &zones[i]
			end := ((i+1)*w + ZoneColumns - 1) / ZoneColumns
			var sum uint64
			var count uint32
			for ; x < end; x += 4 {
				v, next := row[margin+x], row[margin+x+2]
				hist[v>>8]++
				d := int64(next>>4) - int64(v>>4)
				s.Focus += uint64(d * d)
				// all ones if the sample is below white
				_, below := bits.Sub64(uint64(v), uint64(light), 0)
				sum += uint64(v) & -below
				count += uint32(below)
				samples++
				clipped += uint32(1 - below)
			}
			zone.Sum[color] += sum
			zone.Count[color] += count
		}
		s.Clipped[color] += clipped
		s.Samples[color] += samples
	}
}

// forget discards the workers' statistics of a frame that could not be completed.
func (s *Stage) forget() {
	for _, w := range s.workers {
		w.stats = Statistics{}
	}
}

// observe combines the workers' statistics of a frame, passes them to Config.Observe, and adds them to outs as a result
// named Config.Results, if these are set.
func (s *Stage) observe(in *pipeline.Frame, outs []*pipeline.Frame) {
	s.stats = Statistics{Sequence: in.Sequence, Times: in.Times}
	for _, w := range s.workers {
		s.stats.add(&w.stats)
		w.stats = Statistics{}
	}
	if s.config.Observe != nil {
		s.config.Observe(&s.stats)
	}
	if s.config.Results == "" {
		return
	}
	result := s.stats.Result(s.config.Results, s.plan.levels.whites())
	for _, out := range outs {
		if out != nil {
			out.Results = append(out.Results, result)
		}
	}
}
