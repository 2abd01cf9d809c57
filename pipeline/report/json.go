// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tegracast/tegracast/pipeline"
)

// AppendJSON appends the report to b in the encoding of encoding/json, at a fraction of its cost. It returns an error
// for a number or a time that JSON cannot represent.
func (r *Report) AppendJSON(b []byte) ([]byte, error) {
	b = strconv.AppendUint(append(b, `{"frame":`...), r.Frame, 10)
	if r.Group != 0 {
		b = strconv.AppendUint(append(b, `,"group":`...), r.Group, 10)
	}
	b = append(b, `,"captured":"`...)
	b, err := r.Captured.AppendText(b)
	if err != nil {
		return b, err
	}
	b = append(b, `","results":`...)
	if r.Results == nil {
		return append(appendClock(append(b, `null`...), r.Clock), '}'), nil
	}
	b = append(b, '[')
	for i := range r.Results {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendResult(b, &r.Results[i]); err != nil {
			return b, err
		}
	}
	return append(appendClock(append(b, ']'), r.Clock), '}'), nil
}

// appendClock appends the key clock, unless c is nil.
func appendClock(b []byte, c *pipeline.ClockReport) []byte {
	if c == nil {
		return b
	}
	b = AppendText(append(b, `,"clock":{"source":`...), c.Source)
	b = AppendText(append(b, `,"state":`...), string(c.State))
	if c.Offset != nil {
		b = strconv.AppendInt(append(b, `,"offset_ns":`...), int64(*c.Offset), 10)
	}
	b = strconv.AppendInt(append(b, `,"rate_ppb":`...), int64(c.Rate), 10)
	return append(strconv.AppendUint(append(b, `,"steps":`...), c.Steps, 10), '}')
}

func appendResult(b []byte, r *pipeline.Result) ([]byte, error) {
	b = AppendText(append(b, `{"stage":`...), r.Stage)
	var err error
	if len(r.Regions) > 0 {
		b = append(b, `,"regions":[`...)
		for i := range r.Regions {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendRegion(b, &r.Regions[i]); err != nil {
				return b, err
			}
		}
		b = append(b, ']')
	}
	if len(r.Numbers) > 0 {
		if b, err = appendNumbers(append(b, `,"numbers":`...), r.Numbers); err != nil {
			return b, err
		}
	}
	if len(r.Bins) > 0 {
		b = append(b, `,"bins":[`...)
		for i, n := range r.Bins {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(n), 10)
		}
		b = append(b, ']')
	}
	if len(r.Tags)+len(r.Tensors) > 0 || !r.Began.IsZero() || !r.Ended.IsZero() { // of other processes
		rest, err := json.Marshal(others{r.Tags, r.Tensors, r.Began, r.Ended})
		if err != nil {
			return b, err
		}
		return append(append(b, ','), rest[1:]...), nil
	}
	return append(b, '}'), nil
}

// others are the last fields of a pipeline.Result, in its order.
type others struct {
	Tags    map[string]string `json:"tags,omitempty"`
	Tensors []pipeline.Tensor `json:"tensors,omitempty"`
	Began   time.Time         `json:"began,omitzero"`
	Ended   time.Time         `json:"ended,omitzero"`
}

func appendRegion(b []byte, r *pipeline.Region) ([]byte, error) {
	b = strconv.AppendInt(append(b, `{"x":`...), int64(r.X), 10)
	b = strconv.AppendInt(append(b, `,"y":`...), int64(r.Y), 10)
	b = strconv.AppendInt(append(b, `,"width":`...), int64(r.Width), 10)
	b = strconv.AppendInt(append(b, `,"height":`...), int64(r.Height), 10)
	if r.Label != "" {
		b = AppendText(append(b, `,"label":`...), r.Label)
	}
	if r.Score != 0 {
		var err error
		if b, err = appendNumber(append(b, `,"score":`...), r.Score); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// appendNumbers appends numbers, of which there must be at least one, as an object with sorted keys.
func appendNumbers(b []byte, numbers map[string]float64) ([]byte, error) {
	var room [16]string // most results have only a few numbers
	keys := room[:0]
	for k := range numbers {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var err error
	for i, k := range keys {
		if i == 0 {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		if b, err = appendNumber(append(AppendText(b, k), ':'), numbers[k]); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// appendNumber appends a number in the notation of ECMAScript, which encoding/json uses too.
func appendNumber(b []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		_, err := json.Marshal(f) // for the error of encoding/json
		return b, err
	}
	if size := math.Abs(f); size != 0 && (size < 1e-6 || size >= 1e21) {
		b = strconv.AppendFloat(b, f, 'e', -1, 64)
		if n := len(b); b[n-4] == 'e' && b[n-3] == '-' && b[n-2] == '0' { // e-09 becomes e-9
			b = append(b[:n-2], b[n-1])
		}
		return b, nil
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64), nil
}

// AppendText appends text as a JSON string, in the encoding of encoding/json.
func AppendText(b []byte, text string) []byte {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c >= utf8.RuneSelf, c == '"', c == '\\', c == '<', c == '>', c == '&':
			quoted, _ := json.Marshal(text) // marshalling a string cannot fail
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}
