// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"time"
)

// A Result is what a stage found in a frame. It encodes to JSON.
type Result struct {
	Stage   string             `json:"stage"`
	Regions []Region           `json:"regions,omitempty"`
	Numbers map[string]float64 `json:"numbers,omitempty"`
	Bins    []uint32           `json:"bins,omitempty"` // a histogram, lowest bin first
}

// A Region is a rectangle of the frame in pixels, from the upper left corner.
type Region struct {
	X      int     `json:"x"`
	Y      int     `json:"y"`
	Width  int     `json:"width"`
	Height int     `json:"height"`
	Label  string  `json:"label,omitempty"`
	Score  float64 `json:"score,omitempty"` // 0 to 1
}

// A Report is a frame's results as outputs send them: one line of JSON.
type Report struct {
	Frame    uint64    `json:"frame"`    // sequence number
	Captured time.Time `json:"captured"` // the moment that the frame shows
	Results  []Result  `json:"results"`
}

// Report is what outputs send of the frame's results.
func (f *Frame) Report() Report {
	results := f.Results
	if results == nil {
		results = []Result{}
	}
	return Report{Frame: f.Sequence, Captured: f.Times.Shown().UTC(), Results: results}
}

// AppendReport appends the frame's results to b as one line of JSON, with its line feed. A number that JSON has no word
// for is an error.
func (f *Frame) AppendReport(b []byte) ([]byte, error) {
	r := f.Report()
	line, err := r.AppendJSON(b)
	if err != nil {
		return b, fmt.Errorf("results of frame %d: %w", f.Sequence, err)
	}
	return append(line, '\n'), nil
}
