// SPDX-License-Identifier: Apache-2.0

// Package postprocess turns the outputs of a model into results: classes, a heat map whose parts become regions, or
// detections as the models of torchvision return them.
package postprocess

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// A Kind is a kind of output.
type Kind string

// Kinds of output.
const (
	// Classes: one float32 [1 K] or [K], a probability or logit for each of K classes.
	Classes Kind = "classes"
	// HeatMap: one float32 [1 1 h w], [1 h w] or [h w], a probability or logit for each part of the input.
	HeatMap Kind = "heatmap"
	// Detections: float32 [N 4] with the left, top, right and bottom edge of boxes in pixels of the input, float32 [N] with
	// scores, and int64 [N] with labels, in any order: those of torchvision.models.detection (SSD, SSDlite, RetinaNet, FCOS,
	// Faster R-CNN).
	Detections Kind = "detections"
)

// Limits of what is returned for a frame.
const (
	maxRegions = 512
	maxNamed   = 5 // classes with a number of their own
)

// LeftOut is the name of the number of regions that were left out because there were more than 512, or more than a result has
// room for; of a heat map also those outside the frame count. It is set if there are any.
const LeftOut = "left_out"

// A Config says what the outputs of a model are.
type Config struct {
	Kind Kind
	// Labels are the names of classes by number, and of a heat map the one label of its regions. A class without a name is
	// "class 7".
	Labels []string
	// Threshold is a score, 0 to 1. Classes and detections below it are left out; of a heat map the pixels above it count.
	Threshold float64
	// NMS (detections): of two boxes with the same label whose intersection over union is above NMS, 0 to 1, the one with the
	// lower score is left out. 0: none is.
	NMS float64
	// Expand (heat map): each rectangle is moved outwards by Expand·area/perimeter on every side, at most 100. DB text
	// detectors need 1.5. 0: none is.
	Expand float64
	// Width and Height are those of the frames in pixels, to which regions are clipped. 0: not known.
	Width, Height int
	// Outputs are those of the model.
	Outputs []tensor.Info
	// Operators has the operator of ONNX that makes each output, by its name. Classes that Softmax or Sigmoid makes, and a heat
	// map that Sigmoid makes, are probabilities; otherwise they are logits.
	Operators map[string]string
}

// A need is an output that a kind of output has.
type need struct {
	name   string
	kind   tensor.Type
	shapes [][]int64 // tensor.Dynamic: any size
}

const free = tensor.Dynamic

var needs = map[Kind][]need{
	Classes: {{"classes", tensor.Float32, [][]int64{{1, free}, {free}}}},
	HeatMap: {{"heat map", tensor.Float32, [][]int64{{1, 1, free, free}, {1, free, free}, {free, free}}}},
	Detections: {
		{"boxes", tensor.Float32, [][]int64{{free, 4}}}, {"scores", tensor.Float32, [][]int64{{free}}}, {"labels", tensor.Int64, [][]int64{{free}}},
	},
}

// fits reports whether an output has the type and one of the shapes of n.
func (n need) fits(o tensor.Info) bool {
	return o.Type == n.kind && slices.ContainsFunc(n.shapes, func(shape []int64) bool {
		return slices.EqualFunc(shape, o.Shape, func(a, b int64) bool { return a == b || a == free || b == free })
	})
}

func (n need) String() string {
	text := n.name + ": " + n.kind.String()
	for i, shape := range n.shapes {
		if i > 0 {
			text += " or"
		}
		text += " " + strings.ReplaceAll(fmt.Sprint(shape), "-1", "?")
	}
	return text
}

// A Postprocessor makes results of the outputs of a model. It is for one goroutine at a time.
type Postprocessor struct {
	c      Config
	needs  []need
	places []int            // of what is needed, in Config.Outputs
	in     []*tensor.Tensor // what is needed, of this frame
	raw    bool             // the scores are logits
	found  best
	lines  components
}

// New returns a postprocessor. An error says what the kind needs and what the model has.
func New(c Config) (*Postprocessor, error) {
	p := &Postprocessor{c: c, needs: needs[c.Kind], found: best{most: maxRegions}}
	if err := c.check(); err != nil {
		return nil, err
	}
	p.in = make([]*tensor.Tensor, len(p.needs))
	for _, n := range p.needs {
		at := slices.IndexFunc(c.Outputs, n.fits)
		if at < 0 || len(c.Outputs) != len(p.needs) {
			return nil, fmt.Errorf("kind %s: needs a model with the outputs %v; this one has %v", c.Kind, p.needs, c.Outputs)
		}
		p.places = append(p.places, at)
	}
	first := c.Outputs[p.places[0]]
	switch made := c.Operators[first.Name]; c.Kind {
	case Classes:
		p.found.most = maxNamed
		p.raw = made != "Softmax" && made != "Sigmoid"
		if k := first.Shape[len(first.Shape)-1]; k != free {
			if err := p.checkLabels(k); err != nil {
				return nil, err
			}
		}
	case HeatMap:
		p.raw = made != "Sigmoid"
	case Detections:
		if c.NMS > 0 {
			p.found.most = maxCandidates
		}
	}
	return p, nil
}

// check checks what does not depend on the model.
func (c *Config) check() error {
	switch {
	case needs[c.Kind] == nil:
		return fmt.Errorf("kind %q: must be %s, %s or %s", c.Kind, Classes, HeatMap, Detections)
	case !(c.Threshold >= 0 && c.Threshold <= 1):
		return fmt.Errorf("threshold %v: must be 0 to 1", c.Threshold)
	case !(c.NMS >= 0 && c.NMS <= 1):
		return fmt.Errorf("nms %v: must be 0 to 1", c.NMS)
	case c.NMS > 0 && c.Kind != Detections:
		return fmt.Errorf("nms: is for kind %s; leave it out with kind %s", Detections, c.Kind)
	case !(c.Expand >= 0 && c.Expand <= 100):
		return fmt.Errorf("expand %v: must be 0 to 100", c.Expand)
	case c.Expand > 0 && c.Kind != HeatMap:
		return fmt.Errorf("expand: is for kind %s; leave it out with kind %s", HeatMap, c.Kind)
	case c.Width < 0 || c.Height < 0:
		return fmt.Errorf("frames of %d x %d pixels: must not be negative", c.Width, c.Height)
	case c.Kind == HeatMap && len(c.Labels) > 1:
		return fmt.Errorf("%d labels: the regions of a heat map have one", len(c.Labels))
	}
	for i, l := range c.Labels {
		if err := checkLabel(l); err != nil {
			return fmt.Errorf("label %d: %w", i, err)
		}
	}
	return nil
}

// checkLabel returns an error unless a label is a text of at most maxLabel bytes.
func checkLabel(l string) error {
	switch {
	case len(l) > maxLabel:
		return fmt.Errorf("%d bytes, and at most %d are allowed", len(l), maxLabel)
	case !utf8.ValidString(l):
		return fmt.Errorf("%q is not UTF-8", l)
	}
	return nil
}

// checkLabels returns an error unless k classes have as many labels, or none.
func (p *Postprocessor) checkLabels(k int64) error {
	if n := int64(len(p.c.Labels)); n != 0 && n != k {
		return fmt.Errorf("output %q has %d classes, and there are %d labels: use the model's own", p.c.Outputs[p.places[0]].Name, k, n)
	}
	return nil
}

// Process adds to into what the outputs have, which are those of Config.Outputs in the same order. at says where in the
// frame the model's input is. An error names the output that is not as it must be. Nothing is added then.
func (p *Postprocessor) Process(outputs []tensor.Tensor, at tensor.Placement, into *pipeline.Result) error {
	if len(outputs) != len(p.c.Outputs) {
		return fmt.Errorf("the model returned %d outputs, and has %d", len(outputs), len(p.c.Outputs))
	}
	for i, n := range p.needs {
		t := &outputs[p.places[i]]
		size, err := t.Bytes(math.MaxInt64)
		if !n.fits(t.Info) || err != nil || size != int64(len(t.Data)) {
			return fmt.Errorf("output %q: the model returned %s with %d bytes, and kind %s needs %s", p.c.Outputs[p.places[i]].Name,
				t.Info, len(t.Data), p.c.Kind, n)
		}
		p.in[i] = t
	}
	defer clear(p.in)
	p.found.reset()
	if p.c.Kind == Classes {
		return p.classes(into)
	}
	if !tensor.Finite(at.X, at.Y, at.ScaleX, at.ScaleY) || at.ScaleX <= 0 || at.ScaleY <= 0 || at.Width <= 0 || at.Height <= 0 {
		return fmt.Errorf("placement %+v: sizes must be above 0, and numbers finite", at)
	}
	if p.c.Kind == HeatMap {
		p.heatMap(at)
	} else if err := p.detections(at); err != nil {
		return err
	}
	p.report(into)
	return nil
}

// report adds the regions that were found, the highest score first, and the number of those that are left out.
func (p *Postprocessor) report(into *pipeline.Result) {
	for _, c := range p.found.list {
		r := c.region
		if p.c.Kind == Detections {
			r.Label = p.name(c.label)
		} else if len(p.c.Labels) > 0 {
			r.Label = p.c.Labels[0]
		}
		r.Score = float64(c.score)
		into.Regions = append(into.Regions, r)
	}
	if p.found.leftOut > 0 {
		number(into, LeftOut, float64(p.found.leftOut))
	}
}

// name returns the name of a class.
func (p *Postprocessor) name(label int64) string {
	if label >= 0 && label < int64(len(p.c.Labels)) && p.c.Labels[label] != "" {
		return p.c.Labels[label]
	}
	return fmt.Sprintf("class %d", label)
}

// number adds a number, unless there is one of that name.
func number(into *pipeline.Result, name string, value float64) {
	if into.Numbers == nil {
		into.Numbers = map[string]float64{}
	}
	if _, taken := into.Numbers[name]; !taken {
		into.Numbers[name] = value
	}
}

// region returns the part of a box that is in the input and in the frame, with edges rounded to pixels, or false if there is
// none. The box has its left, top, right and bottom edge in pixels of the frame.
func (p *Postprocessor) region(at tensor.Placement, b [4]float64) (pipeline.Region, bool) {
	left, top := at.Frame(0, 0)
	right, bottom := at.Frame(float64(at.Width), float64(at.Height))
	edge := func(v, from, to float64, size int) int {
		if size == 0 {
			size = math.MaxInt32
		}
		return int(max(0, min(max(v, from), to, float64(size))) + 0.5)
	}
	x0, x1 := edge(b[0], left, right, p.c.Width), edge(b[2], left, right, p.c.Width)
	y0, y1 := edge(b[1], top, bottom, p.c.Height), edge(b[3], top, bottom, p.c.Height)
	return pipeline.Region{X: x0, Y: y0, Width: x1 - x0, Height: y1 - y0}, x1 > x0 && y1 > y0
}
