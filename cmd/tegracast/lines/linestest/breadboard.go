// SPDX-License-Identifier: Apache-2.0

package linestest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
)

// Breadboard is a chip whose lines record what is done to them.
type Breadboard struct {
	mu    sync.Mutex
	lines map[string]*Wire // the latest one of each consumer
	busy  map[gpio.Line]bool
}

// Wire is a line. It records when it was driven, and to what level.
type Wire struct {
	board    *Breadboard
	Line     gpio.Line
	Fail     error         // returned by Set; nil: Set succeeds
	slow     time.Duration // duration of the next Set
	at       []time.Time
	levels   []int
	closed   bool
	EdgeList chan gpio.Edge // incoming edges
	lost     uint64
}

// New returns a Breadboard whose lines are all free.
func New() *Breadboard {
	return &Breadboard{lines: map[string]*Wire{}, busy: map[gpio.Line]bool{}}
}

// Open takes a line for a consumer. Tests call it directly to act as another program that holds the line.
func (b *Breadboard) Open(l gpio.Line, consumer string) (*Wire, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.ActiveLow = false
	if b.busy[l] {
		return nil, fmt.Errorf("%w: %s", gpio.ErrBusy, l)
	}
	b.busy[l] = true
	b.lines[consumer] = &Wire{board: b, Line: l, EdgeList: make(chan gpio.Edge, 64)}
	return b.lines[consumer], nil
}

// Output implements lines.Board.
func (b *Breadboard) Output(l gpio.Line, consumer string) (lines.Output, error) {
	w, err := b.Open(l, consumer)
	if err != nil {
		return nil, err
	}
	return w, w.Set(0)
}

// Input implements lines.Board.
func (b *Breadboard) Input(l gpio.Line, consumer string) (lines.Input, error) {
	w, err := b.Open(l, consumer)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Wire returns the line of a consumer.
func (b *Breadboard) Wire(t *testing.T, consumer string) *Wire {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lines[consumer] == nil {
		t.Fatalf("%s was never opened", consumer)
	}
	return b.lines[consumer]
}

// InUse returns the number of open lines.
func (b *Breadboard) InUse() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.busy)
}

// Set implements lines.Output.
func (w *Wire) Set(v int) error {
	w.board.mu.Lock()
	slow := w.slow
	w.slow = 0
	w.board.mu.Unlock()
	time.Sleep(slow)
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	if w.closed {
		return errors.New("closed")
	}
	if w.Fail != nil {
		return w.Fail
	}
	w.at, w.levels = append(w.at, time.Now()), append(w.levels, v)
	return nil
}

// Edges implements lines.Input.
func (w *Wire) Edges() <-chan gpio.Edge { return w.EdgeList }

// Lost implements lines.Input.
func (w *Wire) Lost() uint64 { return w.lost }

// Close implements lines.Output and lines.Input.
func (w *Wire) Close() error {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	if w.closed {
		return errors.New("closed twice")
	}
	w.closed = true
	delete(w.board.busy, w.Line)
	return nil
}

// Pulses returns the start of each pulse, and the duration of each pulse that has ended.
func (w *Wire) Pulses() (begin []time.Time, width []time.Duration) {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	for i, v := range w.levels {
		if v == 1 {
			begin = append(begin, w.at[i])
			if i+1 < len(w.at) {
				width = append(width, w.at[i+1].Sub(w.at[i]))
			}
		}
	}
	return begin, width
}

// Slow makes the next Set take the given time, like a busy machine.
func (w *Wire) Slow(d time.Duration) {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	w.slow = d
}

// Level returns the level to which the line is driven.
func (w *Wire) Level() int {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	return w.levels[len(w.levels)-1]
}

// Closed reports whether the line was closed.
func (w *Wire) Closed() bool {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	return w.closed
}

// Hold blocks Set on every line until release is called.
func (b *Breadboard) Hold() (release func()) {
	b.mu.Lock()
	return b.mu.Unlock
}
