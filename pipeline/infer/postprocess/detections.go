// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"fmt"

	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// maxCandidates is the number of boxes, the best ones, that NMS looks at. The others are left out.
const maxCandidates = 4096

// detections finds the boxes that are valid and in the frame, and whose score is at or above the threshold. Those with NaN,
// an infinite edge, or without an area are invalid.
func (p *Postprocessor) detections(at tensor.Placement) error {
	boxes, scores, labels := p.in[0].Float32s(), p.in[1].Float32s(), p.in[2].Int64s()
	if len(scores) != len(labels) || len(boxes) != 4*len(scores) {
		return fmt.Errorf("outputs %q, %q and %q: the model returned %d boxes, %d scores and %d labels", p.c.Outputs[p.places[0]].Name,
			p.c.Outputs[p.places[1]].Name, p.c.Outputs[p.places[2]].Name, len(boxes)/4, len(scores), len(labels))
	}
	for i, score := range scores {
		if !(float64(score) >= p.c.Threshold) {
			continue
		}
		left, top, right, bottom := float64(boxes[4*i]), float64(boxes[4*i+1]), float64(boxes[4*i+2]), float64(boxes[4*i+3])
		if !tensor.Finite(left, top, right, bottom) || right <= left || bottom <= top {
			continue
		}
		c := candidate{score: min(score, 1), order: i, label: labels[i]}
		c.box[0], c.box[1] = at.Frame(left, top)
		c.box[2], c.box[3] = at.Frame(right, bottom)
		var ok bool
		if c.region, ok = p.region(at, c.box); ok && p.found.wants(c.score, i) {
			p.found.add(c)
		}
	}
	p.found.sort()
	if p.c.NMS > 0 {
		p.suppress()
	}
	return nil
}

// suppress leaves out each box whose intersection over union with a better one of the same label is above NMS, and counts
// those beyond maxRegions that are left.
func (p *Postprocessor) suppress() {
	all, kept := p.found.list, 0
	for _, c := range all {
		switch {
		case p.overlaps(c, all[:kept]):
		case kept == maxRegions:
			p.found.leftOut++
		default:
			all[kept] = c
			kept++
		}
	}
	p.found.list = all[:kept]
}

func (p *Postprocessor) overlaps(c candidate, better []candidate) bool {
	for i := range better {
		if b := &better[i]; b.label == c.label && overlap(&b.box, &c.box) > p.c.NMS {
			return true
		}
	}
	return false
}

// overlap returns the intersection over union of two boxes.
func overlap(a, b *[4]float64) float64 {
	w, h := min(a[2], b[2])-max(a[0], b[0]), min(a[3], b[3])-max(a[1], b[1])
	if w <= 0 || h <= 0 {
		return 0
	}
	area := func(x *[4]float64) float64 { return (x[2] - x[0]) * (x[3] - x[1]) }
	return w * h / (area(a) + area(b) - w*h)
}
