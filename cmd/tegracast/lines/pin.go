// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"context"
	"time"

	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/pipeline"
)

// Output and Input are lines of the board (gpio.Output, gpio.Input). Close restores the line's previous state.
type Output interface {
	Set(value int) error
	Close() error
}

type Input interface {
	Edges() <-chan gpio.Edge
	Lost() uint64
	Close() error
}

// Board opens lines. Outputs start at 0; inputs report rising edges.
type Board interface {
	Output(l gpio.Line, consumer string) (Output, error)
	Input(l gpio.Line, consumer string) (Input, error)
}

// chips are the board's own lines.
type chips struct{}

// Output implements Board.
func (chips) Output(l gpio.Line, consumer string) (Output, error) {
	o, err := gpio.OpenOutput(l, consumer, 0)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Input implements Board.
func (chips) Input(l gpio.Line, consumer string) (Input, error) {
	in, err := gpio.OpenInput(l, consumer, gpio.Rising)
	if err != nil {
		return nil, err
	}
	return in, nil
}

// A pin is a line in operation.
type pin interface {
	run(ctx context.Context) // returns when ctx ends
	close() error            // must not be called while run runs
	books() Books
}

// Books holds the counters of a line. Pulses, Missed and Errors belong to outputs, Lost and Match to inputs.
type Books struct {
	Where          string // its place on the board
	Output         bool
	On             bool // state of an output before inversion
	Records        bool // the edges trigger a recording and are not matched
	Pulses, Missed uint64
	Errors         uint64
	Lost           uint64
	Match          capture.MatchStats
	PPS            time.Duration // time by which the machine's clock is ahead, for the pulse per second only
}

// watcher is a pin that gets the frames of a source, on the source's own goroutine.
type watcher interface{ frame(f *pipeline.Frame) }
