// SPDX-License-Identifier: Apache-2.0

package model

import (
	"sync/atomic"
	"testing"
)

// heldBus makes a read wait for the test.
type heldBus struct {
	Bus
	held      atomic.Bool
	came, let chan struct{}
}

func (b *heldBus) Read(addr uint64, p []byte) error {
	if b.held.CompareAndSwap(true, false) {
		b.came <- struct{}{}
		<-b.let
	}
	return b.Bus.Read(addr, p)
}

// TestResetDuringFetch checks that data read after a reset is not taken for a descriptor, since the memory may have a
// new owner by then.
func TestResetDuringFetch(t *testing.T) {
	b := &heldBus{came: make(chan struct{}), let: make(chan struct{})}
	h := newHost(t, func(bus Bus) Config {
		b.Bus = bus
		return Config{Bus: b, H2C: []Interface{Stream}, C2H: []Interface{Stream}}
	}).startDevice()
	b.held.Store(true)
	h.first(0x5000, h.alloc(32), 0) // zeros, as if the memory had got a new owner after the reset
	h.w(0x1004, 1)
	<-b.came
	h.d.Reset()
	b.let <- struct{}{}
	h.idle(0x1000)
	h.breaks("")
}
