// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"testing"
	"time"
)

func TestF7(t *testing.T) {
	h := newTransferHost(t, FaultPlan{})
	h.w(0x20a0, 2<<8)
	within := func(d time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return h.d.Interrupts().Wait(ctx, 2) == nil
	}
	message := func() bool { return within(10 * time.Millisecond) } // which must not arrive
	comes := func() bool { return within(time.Minute) }
	transfer := func(n uint64) {
		h.inject(F7)
		h.transfer(0x1000) // reads and clears the status
		h.happened(F7, n)
		h.w(0x100c, 1)
	}
	transfer(1)
	h.clock.Advance(time.Second)
	if message() {
		t.Error("the message was not lost")
	}
	transfer(2)
	if !comes() || message() {
		t.Error("not one message")
	}
	h.clock.Advance(4 * time.Millisecond)
	if !comes() || message() {
		t.Error("not sent twice")
	}
	transfer(3)
	if message() {
		t.Error("the message was not late")
	}
	h.clock.Advance(4 * time.Millisecond)
	if !comes() || message() {
		t.Error("the late message did not come once")
	}
	for n, mask := range []struct{ set, clear uint32 }{{0x1094, 0x1098}, {0x2014, 0x2018}} {
		transfer(uint64(4 + 4*n))
		if !comes() {
			t.Error("no message")
		}
		h.stays("pending", func() bool { return h.r(0x204c) == 2 && h.r(0x2044) == 2 && h.r(0x1040) == 0 })
		h.start(0x1000)
		h.idle(0x1000)
		if message() {
			t.Error("a message although the request did not rise")
		}
		h.r(0x1044)
		h.w(mask.clear, 0xfffe7e)
		h.w(mask.set, 0xfffe7e)
		if got := h.r(0x204c); got != 0 {
			t.Errorf("pending %#x after the toggle", got)
		}
		h.transfer(0x1000)
		if !comes() {
			t.Error("no message after the toggle")
		}
		for i := range 3 * (1 - n) { // until the fourth variant is next again
			h.inject(F7)
			h.transfer(0x1000)
			h.happened(F7, uint64(5+i))
		}
		h.clock.Advance(time.Second)
		for message() {
		}
	}
}
