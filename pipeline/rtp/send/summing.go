// SPDX-License-Identifier: Apache-2.0

package send

import (
	"sync"
	"sync/atomic"
)

// summing computes the checksums of trains in a goroutine of its own while their packets are sent: to read a large frame
// takes milliseconds, which the sender does not have. The zero summing does nothing.
type summing struct {
	todo    chan *train // nil: no train has anything to sum
	under   atomic.Bool // a train is being summed
	running sync.WaitGroup
}

// start starts the goroutine. Not more than one train is summed at a time. It calls done when it is.
func (s *summing) start(done func()) {
	s.todo = make(chan *train, 1)
	s.running.Go(func() {
		for t := range s.todo {
			t.Sum()
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

// busy says that the train of begin is not summed yet.
func (s *summing) busy() bool { return s.under.Load() }

// end ends the goroutine.
func (s *summing) end() {
	if s.todo != nil {
		close(s.todo)
		s.running.Wait()
	}
}
