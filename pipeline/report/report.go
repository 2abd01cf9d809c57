// SPDX-License-Identifier: Apache-2.0

// Package report encodes the results of frames as outputs send them: one line of JSON for each frame
// (docs/results-output.md).
package report

import (
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// A Report contains a frame's results. It encodes to JSON.
type Report struct {
	Frame    uint64                `json:"frame"`           // sequence number, counted by the FPGA or the source
	Group    uint64                `json:"group,omitempty"` // number of the frames that belong together
	Captured time.Time             `json:"captured"`        // start of the exposure; end of the DMA if the FPGA's clock is not mapped
	Results  []pipeline.Result     `json:"results"`         // one for each stage with results
	Clock    *pipeline.ClockReport `json:"clock,omitempty"` // the camera's, if it follows another one, when the frame came
}

// Of returns the report on a frame.
func Of(f *pipeline.Frame) Report {
	results := f.Results
	if results == nil {
		results = []pipeline.Result{}
	}
	return Report{Frame: f.Sequence, Group: f.Group, Captured: f.Times.Shown().UTC(), Results: results, Clock: f.Times.Clock}
}

// Append appends the report on a frame to b as one line of JSON, including the line feed. It returns an error for a
// number or a time that JSON cannot represent.
func Append(b []byte, f *pipeline.Frame) ([]byte, error) {
	r := Of(f)
	line, err := r.AppendJSON(b)
	if err != nil {
		return b, fmt.Errorf("results of frame %d: %w", f.Sequence, err)
	}
	return append(line, '\n'), nil
}
