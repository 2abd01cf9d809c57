// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"math"

	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// components finds the 8-connected components of the pixels above a threshold, line by line. Its memory is that of two lines'
// runs and of the components that the last line touches, with room for the next line's.
type components struct {
	above, runs []run // of the line above and of this one, from left to right
	live, kept  []component
}

// A run is pixels beside each other, all of them above the threshold.
type run struct {
	from, to  int // columns, to excluded
	component int // in components.live
}

// A component is one that a line touches, or that is joined to another one.
type component struct {
	parent         int // in components.live; its own place: it is joined to no other
	place          int // in components.kept; -1: this line does not touch it
	first          int // pixel, in the order of the map
	x0, y0, x1, y1 int // bounding rectangle, x1 and y1 excluded
	pixels         int
	sum            float64 // of the probabilities
}

// heatMap finds the regions of a heat map: the bounding rectangles of its components, with the mean probability as score.
// These are OpenCV's boundingRect of the outer contours that findContours returns with RETR_CCOMP. Pixels that are NaN are
// not above the threshold.
func (p *Postprocessor) heatMap(at tensor.Placement) {
	t, m := p.in[0], &p.lines
	height, width := int(t.Shape[len(t.Shape)-2]), int(t.Shape[len(t.Shape)-1])
	pixels, limit := t.Float32s(), float32(p.c.Threshold)
	if len(pixels) == 0 {
		return
	}
	if p.raw {
		limit = float32(math.Log(p.c.Threshold / (1 - p.c.Threshold)))
	}
	m.above, m.live = m.above[:0], m.live[:0]
	scaleX, scaleY := float64(at.Width)/float64(width), float64(at.Height)/float64(height)
	end := func(c *component) {
		score := float32(c.sum / float64(c.pixels))
		if !p.found.wants(score, c.first) {
			return
		}
		w, h := float64(c.x1-c.x0), float64(c.y1-c.y0)
		grow := p.c.Expand * w * h / (2 * (w + h))
		x0, y0 := at.Frame((float64(c.x0)-grow)*scaleX, (float64(c.y0)-grow)*scaleY)
		x1, y1 := at.Frame((float64(c.x1)+grow)*scaleX, (float64(c.y1)+grow)*scaleY)
		if r, ok := p.region(at, [4]float64{x0, y0, x1, y1}); ok {
			p.found.add(candidate{score: score, order: c.first, region: r})
		}
	}
	for y := range height {
		m.line(pixels[y*width:(y+1)*width], y, limit, p.raw)
		m.end(end)
	}
	m.runs = m.runs[:0]
	m.end(end)
	p.found.sort()
}

// line finds the runs of a line, and joins each to the components that it touches.
func (m *components) line(pixels []float32, y int, limit float32, raw bool) {
	m.runs = m.runs[:0]
	above := m.above
	for x := 0; x < len(pixels); x++ {
		if !(pixels[x] > limit) {
			continue
		}
		from, sum := x, 0.0
		for ; x < len(pixels) && pixels[x] > limit; x++ {
			if raw {
				sum += float64(sigmoid(pixels[x]))
			} else {
				sum += float64(min(pixels[x], 1))
			}
		}
		for len(above) > 0 && above[0].to < from {
			above = above[1:]
		}
		own := component{-1, -1, y*len(pixels) + from, from, y, x, y + 1, x - from, sum}
		at := -1
		for i := 0; i < len(above) && above[i].from <= x; i++ {
			at = m.join(at, m.root(above[i].component))
		}
		if at < 0 {
			at = len(m.live)
			own.parent = at
			m.live = append(m.live, own)
		} else {
			m.live[at].add(&own)
		}
		m.runs = append(m.runs, run{from, x, at})
	}
}

// root returns the component to which one is joined.
func (m *components) root(at int) int {
	for m.live[at].parent != at {
		m.live[at].parent = m.live[m.live[at].parent].parent
		at = m.live[at].parent
	}
	return at
}

// join joins two components, which are joined to no others, or -1 and one, and returns the one that stays.
func (m *components) join(one, other int) int {
	if one < 0 || one == other {
		return other
	}
	m.live[other].parent = one
	m.live[one].add(&m.live[other])
	return one
}

func (c *component) add(o *component) {
	c.first, c.pixels, c.sum = min(c.first, o.first), c.pixels+o.pixels, c.sum+o.sum
	c.x0, c.y0, c.x1, c.y1 = min(c.x0, o.x0), min(c.y0, o.y0), max(c.x1, o.x1), max(c.y1, o.y1)
}

// end calls ended for each component that the line does not touch, keeps the others, and makes the line the one above.
func (m *components) end(ended func(*component)) {
	m.kept = m.kept[:0]
	for i := range m.runs {
		r := &m.live[m.root(m.runs[i].component)]
		if r.place < 0 {
			r.place = len(m.kept)
			m.kept = append(m.kept, *r)
			k := &m.kept[r.place]
			k.parent, k.place = r.place, -1
		}
		m.runs[i].component = r.place
	}
	for i := range m.live {
		if c := &m.live[i]; c.parent == i && c.place < 0 {
			ended(c)
		}
	}
	m.live, m.kept = m.kept, m.live
	m.above, m.runs = m.runs, m.above
}

// sigmoids has 1/(1+e^-x) for x from -sigmoidRange to sigmoidRange in steps of 1/sigmoidSteps.
var sigmoids = func() (all [2*sigmoidRange*sigmoidSteps + 2]float32) {
	for i := range all {
		all[i] = float32(1 / (1 + math.Exp(sigmoidRange-float64(i)/sigmoidSteps)))
	}
	return all
}()

const (
	sigmoidRange = 16
	sigmoidSteps = 128
)

// sigmoid returns 1/(1+e^-x) with an error below 1e-6.
func sigmoid(x float32) float32 {
	at := (max(-sigmoidRange, min(x, sigmoidRange)) + sigmoidRange) * sigmoidSteps
	i := int(at)
	return sigmoids[i] + (at-float32(i))*(sigmoids[i+1]-sigmoids[i])
}
