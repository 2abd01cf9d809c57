// SPDX-License-Identifier: Apache-2.0

package share

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/tegracast/tegracast/pipeline"
)

// Limits of the results of a frame.
const (
	maxRegions   = 512
	maxNames     = 64 // numbers, tags and tensors, of each
	maxLabel     = 256
	maxTag       = 1024
	maxDimension = 8
)

// tensorTypes are the types of tensors, with the sizes of their elements in bytes.
var tensorTypes = map[string]int{
	"uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "float32": 4, "float64": 8,
}

// resultText is a result as a consumer returns it.
type resultText struct {
	Regions []regionText       `json:"regions"`
	Numbers map[string]float64 `json:"numbers"`
	Bins    []uint32           `json:"bins"`
	Tags    map[string]string  `json:"tags"`
	Tensors []pipeline.Tensor  `json:"tensors"`
}

// regionText is a rectangle with edges at any place, as models give them.
type regionText struct {
	X, Y, Width, Height float64
	Label               string
	Score               float64
}

// parseResult parses the results of a frame of format f. Regions are rounded to pixels and clipped to the frame; empty
// ones are left out, and scores are limited to 0 to 1. Everything else that is invalid is an error.
func parseResult(text []byte, f pipeline.Format) (r pipeline.Result, err error) {
	if !utf8.Valid(text) {
		return r, fmt.Errorf("%w: the text is not UTF-8", errResult)
	}
	var t resultText
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return r, fmt.Errorf("%w: %w", errResult, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, fmt.Errorf("%w: more text after the object", errResult)
	}
	if err := t.check(); err != nil {
		return r, fmt.Errorf("%w: %w", errResult, err)
	}
	r = pipeline.Result{Numbers: t.Numbers, Bins: t.Bins, Tags: t.Tags, Tensors: t.Tensors}
	for i := range t.Regions {
		if region, ok := t.Regions[i].clip(f); ok {
			r.Regions = append(r.Regions, region)
		}
	}
	encoded, err := json.Marshal(r)
	if err == nil && len(encoded) > maxAnswer { // JSON may escape characters by which they become longer
		err = fmt.Errorf("%w: %d bytes of JSON with escaped characters, and at most %d are allowed", errResult, len(encoded), maxAnswer)
	}
	return r, err
}

// check refuses results beyond the limits.
func (t *resultText) check() error {
	if n := len(t.Regions); n > maxRegions {
		return fmt.Errorf("%d regions, and at most %d are allowed", n, maxRegions)
	}
	if n := max(len(t.Numbers), len(t.Tags), len(t.Tensors)); n > maxNames {
		return fmt.Errorf("%d numbers, tags or tensors, and at most %d of each are allowed", n, maxNames)
	}
	for i := range t.Regions {
		if n := len(t.Regions[i].Label); n > maxLabel {
			return fmt.Errorf("the label of region %d has %d bytes, and at most %d are allowed", i, n, maxLabel)
		}
	}
	for name, value := range t.Tags {
		if len(name) > maxLabel || len(value) > maxTag {
			return fmt.Errorf("a tag with a name of %d and a text of %d bytes, and at most %d and %d are allowed", len(name), len(value), maxLabel, maxTag)
		}
	}
	for i := range t.Tensors {
		if err := checkTensor(&t.Tensors[i]); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Tensors[i].Name, err)
		}
	}
	return nil
}

// checkTensor returns an error unless the data of a tensor has the size of its shape.
func checkTensor(t *pipeline.Tensor) error {
	size, known := tensorTypes[t.Type]
	switch {
	case t.Name == "" || len(t.Name) > maxLabel:
		return fmt.Errorf("its name must have 1 to %d bytes", maxLabel)
	case !known:
		return fmt.Errorf("type %q: must be uint8, int8, uint16, int16, int32, int64, float16, float32 or float64", t.Type)
	case len(t.Shape) > maxDimension || slices.Min(append([]int{0}, t.Shape...)) < 0:
		return fmt.Errorf("shape %v: at most %d dimensions, none of them negative", t.Shape, maxDimension)
	}
	for _, n := range t.Shape {
		if n > maxAnswer || size*n > maxAnswer {
			return fmt.Errorf("shape %v: too large", t.Shape)
		}
		size *= n
	}
	if size != len(t.Data) {
		return fmt.Errorf("shape %v of %s has %d bytes, and there are %d", t.Shape, t.Type, size, len(t.Data))
	}
	return nil
}

// clip returns the part of a rectangle that is in the frame, or false if there is none.
func (t *regionText) clip(f pipeline.Format) (pipeline.Region, bool) {
	edge := func(v float64, most int) int { return int(max(0, min(v, float64(most))) + 0.5) }
	x0, y0 := edge(t.X, f.Width), edge(t.Y, f.Height)
	x1, y1 := edge(t.X+t.Width, f.Width), edge(t.Y+t.Height, f.Height)
	r := pipeline.Region{X: x0, Y: y0, Width: x1 - x0, Height: y1 - y0, Label: t.Label, Score: max(0, min(t.Score, 1))}
	return r, r.Width > 0 && r.Height > 0
}
