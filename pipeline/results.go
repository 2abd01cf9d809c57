// SPDX-License-Identifier: Apache-2.0

package pipeline

// A Result holds what a stage found in a frame. It encodes to JSON.
type Result struct {
	Stage   string             `json:"stage"`             // name of the stage
	Regions []Region           `json:"regions,omitempty"` // rectangles
	Numbers map[string]float64 `json:"numbers,omitempty"` // by name
	Bins    []uint32           `json:"bins,omitempty"`    // histogram, integers, lowest first
}

// A Region is a rectangle of the frame, in pixels from the upper left corner.
type Region struct {
	X      int     `json:"x"`               // pixels from the left
	Y      int     `json:"y"`               // pixels from the top
	Width  int     `json:"width"`           // in pixels
	Height int     `json:"height"`          // in pixels
	Label  string  `json:"label,omitempty"` // what the rectangle shows
	Score  float64 `json:"score,omitempty"` // certainty, 0 to 1
}
