// SPDX-License-Identifier: Apache-2.0

package gpio

import (
	"sync/atomic"
	"time"

	"github.com/warthog618/gpiod"
	"golang.org/x/sys/unix"
)

// Edges selects the edges of a line that an Input reports.
type Edges int

// The edges refer to the value: ActiveLow swaps them.
const (
	Rising Edges = iota
	Falling
	Both
)

// An Edge is one change of a line.
type Edge struct {
	At     time.Time // when the kernel's interrupt handler saw it, by this machine's clock
	Rising bool
	Number uint32 // counts the line's edges from 1 on; gaps are lost edges
}

// An Input reports a line's edges, such as those of an external trigger or PPS.
type Input struct {
	line  *gpiod.Line
	edges chan Edge
	last  uint32 // number of the latest edge; used only by the handler
	lost  atomic.Uint64
}

// edgeQueue is the maximum number of edges that wait to be received, enough for one second of a fast trigger.
const edgeQueue = 1024

// OpenInput opens a line as an input and reports its edges of the given kind until Close.
func OpenInput(l Line, consumer string, edges Edges) (*Input, error) {
	in := &Input{edges: make(chan Edge, edgeQueue)}
	var kind gpiod.LineReqOption = map[Edges]gpiod.LineEdge{Rising: gpiod.WithRisingEdge, Falling: gpiod.WithFallingEdge, Both: gpiod.WithBothEdges}[edges]
	// The handler must not use the line: Close waits for the handler while holding the line's lock.
	line, _, err := request(l, consumer, gpiod.AsInput, kind, gpiod.WithEventHandler(in.handle))
	if err != nil {
		return nil, err
	}
	in.line = line
	return in, nil
}

// handle adds an edge to the channel, or counts it as lost if the channel is full. It also counts the edges before it
// that the kernel has lost. The library calls it for one edge at a time.
func (in *Input) handle(e gpiod.LineEvent) {
	if gap := e.LineSeqno - in.last - 1; gap > 0 && gap < 1<<31 {
		in.lost.Add(uint64(gap)) // the kernel's own buffer was full
	}
	in.last = e.LineSeqno
	edge := Edge{At: wall(e.Timestamp), Rising: e.Type == gpiod.LineEventRisingEdge, Number: e.LineSeqno}
	select {
	case in.edges <- edge:
	default:
		in.lost.Add(1)
	}
}

// clockTries is the number of readings of both clocks. The fastest pair is used, so that an interruption in between
// does not matter.
const clockTries = 4

// wall converts a time of the monotonic clock, which the kernel uses for edges, to this machine's wall clock.
func wall(monotonic time.Duration) time.Time {
	var at time.Time
	best := time.Duration(1<<63 - 1)
	for range clockTries {
		var now unix.Timespec
		before := time.Now()
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail on Linux
		if took := time.Since(before); took < best {
			best, at = took, before.Add(took/2+monotonic-time.Duration(now.Nano()))
		}
	}
	return at
}

// Edges returns the channel of the edges. It is never closed.
func (in *Input) Edges() <-chan Edge { return in.edges }

// Lost returns the number of edges lost because the kernel's buffer or the channel was full.
func (in *Input) Lost() uint64 { return in.lost.Load() }

// Close releases the line. Afterwards no edge is added to the channel.
func (in *Input) Close() error { return in.line.Close() }
