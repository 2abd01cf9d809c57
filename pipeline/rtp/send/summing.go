// SPDX-License-Identifier: Apache-2.0

package send

import "sync"

// summing computes the checksums of trains in a goroutine of its own while their packets are sent: to read a large frame
// takes milliseconds, which the sender does not have. The zero summing does nothing.
type summing struct {
	todo    chan *train // nil: no train has anything to sum
	done    chan struct{}
	running sync.WaitGroup
}

// start starts the goroutine. Not more than one train is summed at a time.
func (s *summing) start() {
	s.todo, s.done = make(chan *train, 1), make(chan struct{}, 1)
	s.running.Go(func() {
		for t := range s.todo {
			t.Sum()
			s.done <- struct{}{}
		}
	})
}

// begin has t summed. wait must follow.
func (s *summing) begin(t *train) {
	if s.todo != nil {
		s.todo <- t
	}
}

// wait waits until the train of begin is summed. Then nothing reads its frame any more.
func (s *summing) wait() {
	if s.todo != nil {
		<-s.done
	}
}

// end ends the goroutine.
func (s *summing) end() {
	if s.todo != nil {
		close(s.todo)
		s.running.Wait()
	}
}
