// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// A list has the open outputs of one kind.
type list[T any] struct {
	mu  sync.Mutex
	all []named[T]
}

type named[T any] struct {
	name string
	is   T
}

// open are the outputs of now.
func (l *list[T]) open() []named[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// take takes an output off the list. The lock is held.
func (l *list[T]) take(name string) T {
	i := slices.IndexFunc(l.all, func(x named[T]) bool { return x.name == name })
	gone := l.all[i].is
	l.all = slices.Delete(l.all, i, i+1)
	return gone
}

// Takers are those who take an output.
type Takers struct {
	Output string
	Now    int
	Kind   string // such as receivers
	Lost   uint64 // frames, of all that have been there
}

func (t Takers) String() string { return fmt.Sprintf("%d %s, lost %d", t.Now, t.Kind, t.Lost) }

// Status is for a status line; empty: there is no output.
func Status(all []Takers) string {
	var b strings.Builder
	for _, t := range all {
		fmt.Fprintf(&b, "  | %s to %d %s lost %d", t.Output, t.Now, t.Kind, t.Lost)
	}
	return b.String()
}
