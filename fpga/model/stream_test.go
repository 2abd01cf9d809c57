// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"testing"
	"time"
)

func streams(b Bus) Config {
	return Config{Bus: b, H2C: []Interface{Stream}, C2H: []Interface{Stream}}
}

// Packets sent on the H2C stream arrive on the C2H stream: they may span descriptors, and an EOP closes a descriptor
// early.
func TestStreamLoopback(t *testing.T) {
	h := newHost(t, streams).startDevice()
	in, out := h.alloc(4096), h.alloc(4096)
	src, dst, wb := h.alloc(1<<16), h.alloc(1<<16), h.alloc(4096)
	want := testPattern(208)
	h.writeMemory(src, want)
	h.list(in, 0, []desc{
		{length: 112, src: src}, {length: 32, src: src + 112, control: 0x10}, // one packet of 144 bytes
		{length: 56, src: src + 144, control: 0x10}, // one of 56
		{length: 8, src: src + 200, control: 0x11},
	})
	receive := make([]desc, 6)
	for i := range receive {
		receive[i] = desc{length: 64, src: wb + uint64(i)*32, dst: dst + uint64(i)*64}
	}
	h.list(out, 0, receive)
	h.first(0x4000, in, 0)
	h.first(0x5000, out, 0)
	h.w(0x1004, logAll|1)
	h.w(0x0004, logAll|1)
	h.idle(0)
	h.eventually("five descriptors", func() bool { return h.r(0x1048) == 5 })
	at := 0
	for i, c := range []struct {
		length, eop uint32
	}{{64, 0}, {64, 0}, {16, 1}, {56, 1}, {8, 1}} {
		if word, length := h.word(receive[i].src), h.word(receive[i].src+4); word != 0x52b4<<16|c.eop || length != c.length {
			t.Errorf("descriptor %d: write-back %#x, %d", i, word, length)
		}
		if got := h.bytes(receive[i].dst, int(c.length)); !bytes.Equal(got, want[at:at+int(c.length)]) {
			t.Errorf("descriptor %d: %x", i, got)
		}
		at += int(c.length)
	}
	if got := h.word(receive[5].src); got != 0 {
		t.Errorf("write-back %#x for a descriptor that is still open", got)
	}
	h.w(0x100c, 1) // Run falls while the sixth waits for data
	h.idle(0x1000)
	if len(h.faults) != 0 {
		t.Error(h.faults)
	}
}

func TestStreamWriteBackDisabled(t *testing.T) {
	h := newHost(t, streams).startDevice()
	in, out, data := h.alloc(4096), h.alloc(4096), h.alloc(4096)
	h.list(in, 0, []desc{{length: 16, src: data, control: 0x11}})
	h.list(out, 0, []desc{{length: 64, dst: data + 64, control: 1}}) // no write-back address
	h.first(0x4000, in, 0)
	h.first(0x5000, out, 0)
	h.w(0x1004, 1<<27|logAll|1)
	h.w(0x0004, 1)
	h.idle(0x1000)
	if h.r(0x1048) != 1 || len(h.faults) != 0 {
		t.Errorf("%d completed, faults %v", h.r(0x1048), h.faults)
	}
}

func TestStreamLengths(t *testing.T) {
	h := newHost(t, streams).startDevice()
	ring := h.alloc(4096)
	for _, c := range []struct {
		channel uint32
		desc    desc
		bad     Rule
	}{
		{0x0000, desc{length: 8, src: ring, control: 1}, RuleStreamWidth},
		{0x0000, desc{length: 8, src: ring, control: 0x11}, ""}, // the last beat of a packet may be short
		{0x1000, desc{length: 8, dst: ring}, RuleC2HLength},
		{0x1000, desc{length: BeatBytes, dst: ring}, RuleC2HLength},
		{0x1000, desc{length: 160, dst: ring}, RuleC2HLength},
	} {
		h.list(ring, 0, []desc{c.desc})
		h.first(0x4000+c.channel, ring, 0)
		h.w(c.channel+4, logAll|1)
		h.idle(c.channel)
		if got := h.r(c.channel+0x44)&(1<<5) != 0; got != (c.bad != "") {
			t.Errorf("%#x, %+v: invalid_length %t", c.channel, c.desc, got)
		}
		h.breaks(c.bad)
		h.w(c.channel+0xc, 1)
	}
}

// More data than the FIFO can hold: the H2C channel must wait for the C2H channel.
func TestStreamBackPressure(t *testing.T) {
	h := newHost(t, streams).startDevice()
	const n = 3*fifoBytes + 4096
	in, out, src, dst := h.alloc(4096), h.alloc(4096), h.alloc(n), h.alloc(n)
	want := testPattern(n)
	h.writeMemory(src, want)
	h.list(in, 0, []desc{{length: n, src: src, control: 0x11}})
	h.list(out, 0, []desc{{length: n, src: out + 1024, dst: dst, control: 1}})
	h.first(0x4000, in, 0)
	h.first(0x5000, out, 0)
	h.w(0x0004, 1)
	time.Sleep(5 * time.Millisecond)
	if h.r(0x40)&1 == 0 {
		t.Error("H2C is done although nobody reads")
	}
	h.w(0x1004, 1)
	h.idle(0x1000)
	h.idle(0)
	if !bytes.Equal(h.bytes(dst, n), want) || h.word(out+1028) != n {
		t.Error("the data differ")
	}
}
