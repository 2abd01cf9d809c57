// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"math"

	"github.com/tegracast/tegracast/pipeline"
)

// classes adds the best class as tag "class", its score as number "score", and the scores of at most five classes at or
// above the threshold as numbers by their names; of several with the same name the best one. NaN is left out: of NaN alone
// there are no results.
func (p *Postprocessor) classes(into *pipeline.Result) error {
	scores := p.in[0].Float32s()
	if err := p.checkLabels(int64(len(scores))); err != nil {
		return err
	}
	for i, s := range scores {
		if !math.IsNaN(float64(s)) && p.found.wants(s, i) {
			p.found.add(candidate{score: s, order: i})
		}
	}
	p.found.sort()
	if len(p.found.list) == 0 {
		return nil
	}
	score := unit[float32]
	if p.raw {
		score = softmax(scores, p.found.list[0].score)
	}
	if into.Tags == nil {
		into.Tags = map[string]string{}
	}
	for i, c := range p.found.list {
		name, s := p.name(int64(c.order)), score(c.score)
		if i == 0 {
			into.Tags["class"] = name
			number(into, "score", s)
		}
		if s >= p.c.Threshold {
			number(into, name, s)
		}
	}
	return nil
}

// softmax returns the function from a logit to its probability among the logits, the highest of which is most. NaN does not
// count. Infinite logits are as the largest finite ones.
func softmax(logits []float32, most float32) func(float32) float64 {
	finite := func(x float32) float64 { return max(-math.MaxFloat32, min(float64(x), math.MaxFloat32)) }
	sum := 0.0
	for _, x := range logits {
		if !math.IsNaN(float64(x)) {
			sum += math.Exp(finite(x) - finite(most))
		}
	}
	return func(x float32) float64 { return math.Exp(finite(x)-finite(most)) / sum }
}

// unit limits a score to 0 to 1.
func unit[F float32 | float64](score F) float64 { return float64(max(0, min(score, 1))) }
