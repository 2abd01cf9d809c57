// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"cmp"
	"fmt"
	"math"

	"github.com/tegracast/tegracast/pipeline/isp"
)

// WhiteBalanceConfig configures automatic white balance.
type WhiteBalanceConfig struct {
	Min, Max isp.Gains // limits of R and B; 0 means 1 in Min and 4 in Max. G stays 1
}

// Validate returns nil, or an error that wraps ErrConfig and states the value and the violated rule.
func (c WhiteBalanceConfig) Validate() error { return c.complete() }

func (c *WhiteBalanceConfig) complete() error {
	c.Min.R, c.Min.B = cmp.Or(c.Min.R, 1), cmp.Or(c.Min.B, 1)
	c.Max.R, c.Max.B = cmp.Or(c.Max.R, 4), cmp.Or(c.Max.B, 4)
	for _, l := range [][2]float64{{c.Min.R, c.Max.R}, {c.Min.B, c.Max.B}} {
		if !(l[0] >= 1.0/4096 && l[1] >= l[0] && l[1] <= 16) {
			return fmt.Errorf("%w: white balance gain from %v to %v: must be within 1/4096 to 16", ErrConfig, l[0], l[1])
		}
	}
	return nil
}

// darkest and brightest are shares of white. Zones darker or brighter than these are ignored, because noise and
// clipping distort their colour.
const (
	darkest   = 0.01
	brightest = 0.9
)

// balanceDamping is the part of an error, on a logarithmic scale, that remains after a frame.
const balanceDamping = 0.75

// leastZones is the minimum number of usable zones for a change.
const leastZones = 8

// A WhiteBalance is the controller of the white balance. It assumes that the mean of the scene is grey, over the zones
// whose colour a light within the limits could produce from grey. The statistics are taken before the white balance, so
// this is not a feedback loop and has no delay to consider.
type WhiteBalance struct {
	config WhiteBalanceConfig
	gains  isp.Gains
	frozen bool
}

// NewWhiteBalance returns a controller that starts with the current gains of the isp. The error wraps ErrConfig.
func NewWhiteBalance(c WhiteBalanceConfig, now isp.Gains) (*WhiteBalance, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	w := &WhiteBalance{config: c, gains: isp.Gains{R: now.R, G: 1, B: now.B}}
	for _, g := range []*float64{&w.gains.R, &w.gains.B} {
		if *g == 0 {
			*g = 1
		}
		if !(*g > 0) || math.IsInf(*g, 1) {
			return nil, fmt.Errorf("%w: gains %v to begin with", ErrConfig, now)
		}
	}
	return w, nil
}

// Limited reports whether a gain is at one of its limits, to within 0.1 %.
func (w *WhiteBalance) Limited() bool {
	at := func(g, lowest, highest float64) bool { return g <= lowest*1.001 || g >= highest*0.999 }
	return at(w.gains.R, w.config.Min.R, w.config.Max.R) || at(w.gains.B, w.config.Min.B, w.config.Max.B)
}

// Freeze makes Step keep the gains if frozen is true, or change them again if not.
func (w *WhiteBalance) Freeze(frozen bool) { w.frozen = frozen }

// Step processes a frame's statistics and returns the gains for the following frames.
func (w *WhiteBalance) Step(s *isp.Statistics) isp.Gains {
	if w.frozen {
		return w.gains
	}
	c := w.config
	var sum [3]float64
	zones := 0
	for y := range s.Zones {
		for x := range s.Zones[y] {
			r, g, b, ok := colors(&s.Zones[y][x])
			if !ok || !plausible(g/r, c.Min.R, c.Max.R) || !plausible(g/b, c.Min.B, c.Max.B) {
				continue
			}
			// Every zone has the same weight, however bright it is.
			sum[0], sum[1], sum[2] = sum[0]+r/(r+g+b), sum[1]+g/(r+g+b), sum[2]+b/(r+g+b)
			zones++
		}
	}
	if zones >= leastZones {
		step := func(from, to float64) float64 { return from * math.Pow(to/from, 1-balanceDamping) }
		w.gains.R = min(max(step(w.gains.R, sum[1]/sum[0]), c.Min.R), c.Max.R)
		w.gains.B = min(max(step(w.gains.B, sum[1]/sum[2]), c.Min.B), c.Max.B)
	}
	return w.gains
}

// plausible reports whether a zone needs approximately such a gain as a light within the limits would require. It
// allows for the tints of surfaces, because otherwise the limits would bias the mean.
func plausible(gain, lowest, highest float64) bool {
	const tint = 1.6
	return gain*tint >= lowest && gain <= highest*tint
}

// colors returns the means of a zone, from 0 to 1, and whether they are usable.
func colors(z *isp.Zone) (r, g, b float64, ok bool) {
	var mean [3]float64
	for i := range mean {
		if z.Count[i] == 0 {
			return 0, 0, 0, false
		}
		mean[i] = float64(z.Sum[i]) / float64(z.Count[i]) / 65535
	}
	return mean[0], mean[1], mean[2], min(mean[0], mean[1], mean[2]) >= darkest && max(mean[0], mean[1], mean[2]) <= brightest
}

// raised returns gains of the same ratio of which none is below 1, because clipped samples would be tinted; or, if one would
// then be above 16, as close to that as 16 allows.
func raised(g isp.Gains) isp.Gains {
	least := min(1, max(min(g.R, g.G, g.B), max(g.R, g.G, g.B)/16))
	return isp.Gains{R: g.R / least, G: g.G / least, B: g.B / least}
}
