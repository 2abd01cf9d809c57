// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// A list contains the open outputs of one kind.
type list[T any] struct {
	mu  sync.Mutex
	all []named[T]
}

type named[T any] struct {
	name string
	is   T
}

// open returns a copy of the list.
func (l *list[T]) open() []named[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// takeOutput removes an output, which must be in the list, and returns it. l.mu must be held.
func (l *list[T]) takeOutput(name string) T {
	i := slices.IndexFunc(l.all, func(x named[T]) bool { return x.name == name })
	gone := l.all[i].is
	l.all = slices.Delete(l.all, i, i+1)
	return gone
}

// A consumerCount counts the consumers of one output.
type consumerCount struct {
	Output string
	Now    int
	Kind   string // such as "receivers"
	Lost   uint64 // frames lost by all consumers, including former ones
}

func (t consumerCount) String() string { return fmt.Sprintf("%d %s, lost %d", t.Now, t.Kind, t.Lost) }

// describeConsumers returns the consumers' part of a status line, or "" if there is no output.
func describeConsumers(all []consumerCount) string {
	var b strings.Builder
	for _, t := range all {
		fmt.Fprintf(&b, "  | %s to %d %s lost %d", t.Output, t.Now, t.Kind, t.Lost)
	}
	return b.String()
}
