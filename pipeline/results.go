// SPDX-License-Identifier: Apache-2.0

package pipeline

import "time"

// A Result holds what a stage found in a frame. It encodes to JSON.
type Result struct {
	Stage   string             `json:"stage"`             // name of the stage
	Regions []Region           `json:"regions,omitempty"` // rectangles
	Numbers map[string]float64 `json:"numbers,omitempty"` // by name
	Bins    []uint32           `json:"bins,omitempty"`    // histogram, integers, lowest first
	Tags    map[string]string  `json:"tags,omitempty"`    // text about the frame, by name
	Tensors []Tensor           `json:"tensors,omitempty"` // arrays of numbers
	Began   time.Time          `json:"began,omitzero"`    // when the work on the frame began, by the clock of the process that did it
	Ended   time.Time          `json:"ended,omitzero"`    // when it ended, by the same clock
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

// A Tensor is an array of numbers with one or more dimensions.
type Tensor struct {
	Name  string `json:"name"`  // of the tensor
	Type  string `json:"type"`  // of the numbers: uint8, int8, uint16, int16, int32, int64, float16, float32 or float64
	Shape []int  `json:"shape"` // number of elements of each dimension, the slowest first
	Data  []byte `json:"data"`  // little-endian, without gaps; in base64
}
