// SPDX-License-Identifier: Apache-2.0

package web

import (
	"slices"
	"sync"
)

// A tail keeps the latest elements of a sequence, which are numbered from 1 on.
type tail[T any] struct {
	most int // number of elements kept

	mu   sync.Mutex
	list []T
	last uint64        // number of the latest element; 0: none
	more chan struct{} // closed by the next element
}

func newTail[T any](most int) *tail[T] { return &tail[T]{most: most, more: make(chan struct{})} }

// add adds an element.
func (t *tail[T]) add(x T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) == t.most {
		t.list = slices.Delete(t.list, 0, 1)
	}
	t.list = append(t.list, x)
	t.last++
	close(t.more)
	t.more = make(chan struct{})
}

// number returns the number of the latest element, or 0 if there is none.
func (t *tail[T]) number() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// after returns the kept elements after number n, the number of the latest element, and a channel that the next element
// closes. An n above the number of the latest element counts as 0.
func (t *tail[T]) after(n uint64) (list []T, last uint64, more <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n > t.last { // from an earlier process
		n = 0
	}
	kept := min(t.last-n, uint64(len(t.list)))
	return slices.Clone(t.list[uint64(len(t.list))-kept:]), t.last, t.more
}
