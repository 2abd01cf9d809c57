// SPDX-License-Identifier: Apache-2.0

package send

import (
	"sync"
	"sync/atomic"
)

// summing computes the checksums of trains in a separate goroutine while their packets are being sent, or their frames
// are filling. Reading a large frame takes milliseconds, which the sender cannot spare. The zero summing does nothing.
type summing struct {
	todo    chan *train // nil if no train needs a checksum
	under   atomic.Bool // a train is being summed
	running sync.WaitGroup
}

// start starts the goroutine. At most one train is summed at a time. After each train the goroutine calls done.
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

// sumTrain starts summing t. Its frame must be kept until busy returns false.
func (s *summing) sumTrain(t *train) {
	if s.todo != nil {
		s.under.Store(true)
		s.todo <- t
	}
}

// busy reports whether the train given to sumTrain is still being summed.
func (s *summing) busy() bool { return s.under.Load() }

// await waits until the train given to sumTrain is summed, or its frame turns out to be damaged.
func (s *summing) await(turn *turn) {
	for s.busy() {
		turn.wait()
	}
}

// sum computes the checksum of t. For a filling frame it sums the lines as they arrive, until the frame turns out to be
// damaged or the stream ends.
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

// sumSteps is the approximate number of parts in which the lines of a filling frame are summed. It limits how often the
// goroutine wakes up.
const sumSteps = 16

// end ends the goroutine, if it was started, after the current train.
func (s *summing) end() {
	if s.todo != nil {
		close(s.todo)
		s.running.Wait()
	}
}
