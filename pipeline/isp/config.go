// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"fmt"
	"image"
	"math"
	"slices"
)

// Gains is the white balance: each sensor colour is multiplied by its gain. A gain of zero means 1. Gains below 1 tint
// clipped highlights. For a monochrome sensor only G is used.
type Gains struct {
	R, G, B float64 // from 1/4096 to 16, in steps of 1/4096
}

// The channels of a mosaic. Gr are the green samples in lines with red ones, Gb those in lines with blue ones. A
// monochrome sensor has only Gr.
const (
	R = iota
	Gr
	Gb
	B
)

// A Demosaic is a method of computing three colours per pixel from one.
type Demosaic uint8

const (
	Bilinear Demosaic = iota // means of the nearest neighbours: soft, and with zipper artefacts at edges
	Malvar                   // Malvar, He, Cutler 2004: the means are corrected by the gradient of the known colour
)

// Shading is a grid of gains that corrects the lens's fall-off. The corner nodes are at the centres of the corner
// samples, the others at equal distances in between. Gains are interpolated bilinearly.
type Shading struct {
	Columns, Rows int          // 2 to 64 each
	Gains         [4][]float64 // by channel, line by line from the top, Columns x Rows each; above 0 and below 8, in steps of 1/4096
}

// Defects lists sensor pixels to be replaced by a mean of neighbours of the same colour.
type Defects struct {
	Pixels    []image.Point // known defects; those outside the frame are ignored
	Threshold int           // how far a sample may be above or below all of its eight neighbours, in the sensor's units; 0: no search
}

// Config configures a Stage. The zero values of Defects, Shading, Matrix and Sharpen disable these steps, which then
// cost no time; those of Gains mean 1.
type Config struct {
	BlackLevel int    // value that the sensor delivers without light, in its own units
	Black      [4]int // added to BlackLevel, by channel; each sum must be from 0 to 2^bits - 2 (1022 at 10 bits)
	Defects    Defects
	Shading    *Shading
	Gains      Gains
	Demosaic   Demosaic
	Matrix     [9]float64 // rows R, G, B: from the sensor's white-balanced colours to those of BT.709; elements from -8 to 8, in steps of 1/4096
	Gamma      float64    // 0 is the BT.709 OETF (§1.2); otherwise V = L^(1/Gamma), with Gamma from 1 to 4 in steps of 1/100
	Curve      []int      // replaces Gamma: 2 to 4096 knots from 0 to 4080 (white), equally spaced over linear light and joined by straight lines
	Sharpen    float64    // 0 to 4: factor with which detail is added, in steps of 1/64
	Turn       Turn       // of the pictures; statistics and everything above refer to the sensor's frame
	Workers    int        // bands processed at the same time; 0: one for each CPU that Go uses, at most MaxWorkers

	// Results is the name under which the statistics of each frame are attached to the outputs, as a pipeline.Result;
	// if empty, they are not attached. They are allocated for each frame.
	Results string

	// Observe is called with the statistics of every frame before Process returns or, for a stage that works
	// asynchronously, before the outputs' Ready fence opens. Statistics are computed only if Observe or Results is set.
	// They are valid until Observe returns. Observe must not call the Stage, but may start something that does.
	Observe func(*Statistics)
}

// White is the largest value of the tone curve, in the units of Config.Curve: 255 times 16.
const White = 255 * 16

const (
	MaxWorkers = 256  // maximum of Config.Workers
	maxGrid    = 64   // maximum number of columns and of rows of a Shading
	maxShading = 8    // gains of a Shading are below it
	maxKnots   = 4096 // maximum number of knots of Config.Curve
)

// Validate returns nil, or an error that wraps ErrConfig and states the field, its value and the violated rule. Plan
// checks what depends on the number of bits.
func (c Config) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, a...))
	}
	if err := c.Gains.Validate(); err != nil {
		return err
	}
	if c.Gamma != 0 && !(c.Gamma >= 1 && c.Gamma <= 4) {
		return bad("gamma %v: must be from 1 to 4, or 0 for the BT.709 transfer function", c.Gamma)
	}
	if c.Workers < 0 || c.Workers > MaxWorkers {
		return bad("%d workers: must be from 1 to %d, or 0 for one per CPU", c.Workers, MaxWorkers)
	}
	if c.Demosaic > Malvar {
		return bad("demosaic %d: must be Bilinear or Malvar", c.Demosaic)
	}
	if !(c.Sharpen >= 0 && c.Sharpen <= 4) {
		return bad("sharpen %v: must be from 0 to 4", c.Sharpen)
	}
	for i, m := range c.Matrix {
		if !(m >= -8 && m <= 8) {
			return bad("matrix element %d is %v: must be from -8 to 8", i, m)
		}
	}
	if n := len(c.Curve); n == 1 || n > maxKnots {
		return bad("curve of %d knots: must have from 2 to %d, or none", n, maxKnots)
	}
	for i, k := range c.Curve {
		if k < 0 || k > white {
			return bad("curve knot %d is %d: must be from 0 to %d", i, k, white)
		}
	}
	if t := c.Defects.Threshold; t < 0 || t > math.MaxUint16 {
		return bad("defect threshold %d: must be from 0 to %d", t, math.MaxUint16)
	}
	if err := c.checkBlack(16); err != nil {
		return err
	}
	return c.Shading.validate(bad)
}

// Validate returns nil, or an error that wraps ErrConfig and states the gain, its value and the violated rule.
func (g Gains) Validate() error {
	for _, g := range []struct {
		name string
		gain float64
	}{{"red", g.R}, {"green", g.G}, {"blue", g.B}} {
		if g.gain != 0 && !(g.gain >= 1.0/gainOne && g.gain <= maxGain) {
			return fmt.Errorf("%w: %s gain %v: must be from 1/%d to %d, or 0 for 1", ErrConfig, g.name, g.gain, gainOne, maxGain)
		}
	}
	return nil
}

// checkBlack checks the black levels, whose maximum depends on the sensor's number of bits.
func (c Config) checkBlack(bits int) error {
	limit := 1<<bits - 2
	for i, name := range []string{"red", "green (red lines)", "green (blue lines)", "blue"} {
		sum := c.BlackLevel + c.Black[i]
		switch {
		case c.Black[i] == 0 && (c.BlackLevel < 0 || c.BlackLevel > limit):
			return fmt.Errorf("%w: black level %d: must be from 0 to %d", ErrConfig, c.BlackLevel, limit)
		case c.Black[i] < -1<<16 || c.Black[i] > 1<<16 || c.BlackLevel < -1<<16 || c.BlackLevel > 1<<16 || sum < 0 || sum > limit:
			return fmt.Errorf("%w: black level of %s %d: must be from 0 to %d", ErrConfig, name, sum, limit)
		}
	}
	return nil
}

func (s *Shading) validate(bad func(string, ...any) error) error {
	if s == nil {
		return nil
	}
	if s.Columns < 2 || s.Rows < 2 || s.Columns > maxGrid || s.Rows > maxGrid {
		return bad("shading grid of %dx%d: must be from 2x2 to %dx%d", s.Columns, s.Rows, maxGrid, maxGrid)
	}
	for i, gains := range s.Gains {
		if len(gains) != s.Columns*s.Rows {
			return bad("shading gains of channel %d: %d, must be %d", i, len(gains), s.Columns*s.Rows)
		}
		for j, g := range gains {
			if !(g >= 1.0/gainOne && g <= maxShading-1.0/gainOne) {
				return bad("shading gain %d of channel %d is %v: must be from 1/%d to below %d", j, i, g, gainOne, maxShading)
			}
		}
	}
	return nil
}

// Clone returns a deep copy.
func (c Config) Clone() Config {
	c.Defects.Pixels = slices.Clone(c.Defects.Pixels)
	c.Curve = slices.Clone(c.Curve)
	if c.Shading != nil {
		s := *c.Shading
		for i := range s.Gains {
			s.Gains[i] = slices.Clone(s.Gains[i])
		}
		c.Shading = &s
	}
	return c
}

// fixed returns a factor in units of 1/gainOne, rounded half up.
func fixed(factor float64) int { return int(math.Floor(factor*gainOne + 0.5)) }
