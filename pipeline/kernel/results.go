// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/tegracast/tegracast/pipeline"
)

// The layout of Results in prelude.cuh.
const (
	maxRegions = 256
	regionSize = 24
)

func (c *Config) binsAt() int { return 4 + maxRegions*regionSize + 4*max(1, len(c.Numbers)) }

func (c *Config) resultsSize() int { return c.binsAt() + 4*max(1, c.Bins) }

// result parses the output of a kernel, which may contain anything: regions are clipped to the frame and sorted by line
// and column; empty ones are omitted, as are numbers that JSON cannot represent.
func (c *Config) result(b []byte, f pipeline.Format) pipeline.Result {
	r := pipeline.Result{Stage: c.Name}
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	for i := range min(word(0), maxRegions) {
		if region, ok := c.region(b[4+i*regionSize:][:regionSize], f); ok {
			r.Regions = append(r.Regions, region)
		}
	}
	slices.SortFunc(r.Regions, func(p, q pipeline.Region) int {
		return cmp.Or(cmp.Compare(p.Y, q.Y), cmp.Compare(p.X, q.X), cmp.Compare(p.Width*p.Height, q.Width*q.Height), cmp.Compare(p.Label, q.Label))
	})
	for i, name := range c.Numbers {
		v := float64(math.Float32frombits(word(4 + maxRegions*regionSize + 4*i)))
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		if r.Numbers == nil {
			r.Numbers = map[string]float64{}
		}
		r.Numbers[name] = v
	}
	for i := range c.Bins {
		r.Bins = append(r.Bins, word(c.binsAt()+4*i))
	}
	return r
}

func (c *Config) region(b []byte, f pipeline.Format) (pipeline.Region, bool) {
	field := func(i int) int { return int(int32(binary.LittleEndian.Uint32(b[4*i:]))) }
	x0, y0 := max(0, field(0)), max(0, field(1))
	x1, y1 := min(f.Width, field(0)+field(2)), min(f.Height, field(1)+field(3))
	if x1 <= x0 || y1 <= y0 {
		return pipeline.Region{}, false
	}
	r := pipeline.Region{X: x0, Y: y0, Width: x1 - x0, Height: y1 - y0}
	switch label := field(4); {
	case label >= 0 && label < len(c.Labels):
		r.Label = c.Labels[label]
	case label >= 0:
		r.Label = strconv.Itoa(label)
	}
	if score := float64(math.Float32frombits(binary.LittleEndian.Uint32(b[20:]))); score > 0 { // false for a NaN
		r.Score = min(score, 1)
	}
	return r, true
}
