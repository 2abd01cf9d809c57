// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"log/slog"
	"sync"
	"testing"
	"time"
)

// together is a publisher whose Close returns once all publishers are being closed.
type together struct{ all *sync.WaitGroup }

func (p together) Close() {
	p.all.Done()
	p.all.Wait()
}

func (p together) Trouble() string { return "" }

// TestClose checks that publishers are closed concurrently.
func TestClose(t *testing.T) {
	s := New(slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	all.Add(2)
	s.list = []stream{{name: "a", publisher: together{&all}}, {name: "none"}, {name: "b", publisher: together{&all}}}
	closed := make(chan struct{})
	go func() {
		s.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("one is closed after the other")
	}
}
