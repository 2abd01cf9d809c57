// SPDX-License-Identifier: Apache-2.0

package send

import (
	"sync"
	"sync/atomic"
)

// summing computes the checksums of trains in a goroutine of its own while their packets are sent, or their frames fill: to read
// a large frame takes milliseconds, which the sender does not have. The zero summing does nothing.
type summing struct {
	todo    chan *train // nil: no train has anything to sum
	under   atomic.Bool // a train is being summed
	running sync.WaitGroup
}

// start starts the goroutine. Not more than one train is summed at a time. It calls done when it is.
func (s *summing) start(done func()) {
	s.todo = make(chan *train, 1)
	s.running.Go(func() {
		for t := range s.todo { // ends: end closes it
			t.sum()
			s.under.Store(false)
			done()
		}
	})
}

// begin has t summed. Its frame must stay until busy says that nothing reads it any more.
func (s *summing) begin(t *train) {
	if s.todo != nil {
		s.under.Store(true)
		s.todo <- t
	}
}

// busy reports whether the train of begin is not summed yet.
func (s *summing) busy() bool { return s.under.Load() }

// await waits until the train of begin is summed, or its frame is known to be damaged.
func (s *summing) await(turn *turn) {
	for s.busy() {
		turn.wait()
	}
}

// sum computes the checksum of t. That of a frame that fills follows its lines, as far as the frame becomes complete.
func (t *train) sum() {
	g := &t.filling
	if g.frame == nil {
		t.Sum()
		return
	}
	height := g.frame.Format.Height
	for summed := 0; summed < height; {
		lines, err := g.frame.WaitLines(g.ctx, min(summed+max(height/sumSteps, 1), height))
		if err != nil {
			return
		}
		g.packer.SumLines(t.Train, g.frame, summed, lines)
		summed = lines
	}
}

// sumSteps bounds how often the goroutine wakes for a frame that fills.
const sumSteps = 16

// end ends the goroutine.
func (s *summing) end() {
	if s.todo != nil {
		close(s.todo)
		s.running.Wait()
	}
}
