// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	vt "github.com/tegracast/tegracast/fpga/vfiouser/vfiousertest"
)

const (
	none, bools, events   = uint32(1), uint32(2), uint32(4)
	mask, unmask, trigger = uint32(8), uint32(16), uint32(32)

	intx, msi, msix = uint32(0), uint32(1), uint32(2)
)

// irq returns the body of a SET_IRQS.
func irq(flags, index, start, count uint32, data ...byte) []byte {
	return vt.Cat(uint32(20+len(data)), flags, index, start, count, data)
}

func TestMessages(t *testing.T) {
	d := serve(t)
	c := d.connect(t)
	v := c.NewVectors(70)
	want := func(what string, vector int, n uint64) {
		t.Helper()
		if got := v.Raised(vector); got != n {
			t.Errorf("%s: vector %d was raised %d times, want %d", what, vector, got, n)
		}
	}
	pba := func(want uint64) {
		t.Helper()
		works(t, "pending bits", c.Read(0, 0x9000, 8), vt.Cat(uint64(0x9000), no, uint32(8), want))
	}
	d.Raise(3)
	d.Raise(3)
	d.Raise(69)
	d.Raise(70) // does not exist
	d.Raise(-1)
	pba(1 << 3)
	v.Assign(c, msix)
	pba(0)
	want("kept", 3, 1)
	want("kept", 69, 1)
	want("never raised", 4, 0)
	d.Raise(69)
	d.Raise(69)
	want("raised", 69, 2)
	works(t, "take one away", c.Do(vt.SetIRQs, irq(events|trigger, msix, 5, 1)), nil)
	d.Raise(5)
	want("taken away", 5, 0)
	works(t, "bring it back", c.Do(vt.SetIRQs, irq(events|trigger, msix, 5, 1), v.FDs[5]), nil)
	want("brought back", 5, 1)
	works(t, "test", c.Do(vt.SetIRQs, irq(none|trigger, msix, 6, 2)), nil)
	want("tested", 6, 1)
	want("tested", 7, 1)
	works(t, "test some", c.Do(vt.SetIRQs, irq(bools|trigger, msix, 6, 2, 0, 1)), nil)
	want("not chosen", 6, 0)
	want("chosen", 7, 1)
	works(t, "all away", c.Do(vt.SetIRQs, irq(none|trigger, msix, 0, 0)), nil)
	d.Raise(8)
	want("all away", 8, 0)
	pba(1 << 8)
	works(t, "reset", c.Do(vt.Reset, nil), nil)
	pba(0)
	if b := d.Books(); b.Raised != 8 || b.Kept != 5 {
		t.Errorf("the books say %d raised, %d kept", b.Raised, b.Kept)
	}
}

// TestMSI checks that a vector that was not granted is sent as the one with the same low bits, and not before that one is
// assigned.
func TestMSI(t *testing.T) {
	d := serve(t)
	c := d.connect(t)
	c.Write(7, 0x4a, []byte{2<<4 | 1}) // four of eight
	v := c.NewVectors(4)
	works(t, "two", c.Do(vt.SetIRQs, irq(events|trigger, msi, 0, 2), v.FDs[:2]...), nil)
	d.Raise(7)
	d.Raise(5)
	if a, b := v.Raised(0), v.Raised(1); a != 0 || b != 1 {
		t.Errorf("raised %d and %d times, want 0 and 1", a, b)
	}
	works(t, "two more", c.Do(vt.SetIRQs, irq(events|trigger, msi, 2, 2), v.FDs[2:]...), nil)
	if a, b := v.Raised(2), v.Raised(3); a != 0 || b != 1 {
		t.Errorf("raised %d and %d times, want 0 and 1", a, b)
	}
}

// TestLine checks that a level gives one event until it is unmasked, and another one if it is still asserted then.
func TestLine(t *testing.T) {
	d := serve(t)
	c := d.connect(t)
	v := c.NewVectors(1)
	want := func(what string, n uint64) {
		t.Helper()
		if got := v.Raised(0); got != n {
			t.Errorf("%s: raised %d times, want %d", what, got, n)
		}
	}
	do := func(flags uint32) {
		t.Helper()
		works(t, "line", c.Do(vt.SetIRQs, irq(none|flags, intx, 0, 1)), nil)
	}
	d.set(true)
	v.Assign(c, intx)
	want("asserted before", 1)
	d.set(true)
	want("asserted still", 0)
	do(unmask)
	want("unmasked", 1)
	d.set(false)
	do(unmask)
	want("unmasked when quiet", 0)
	do(mask)
	d.set(true)
	want("masked", 0)
	do(unmask)
	want("unmasked", 1)
	c.Write(7, 5, []byte{4}) // Interrupt Disable
	do(unmask)
	want("disabled", 0)
	works(t, "status", c.Read(7, 6, 1), vt.Cat(uint64(6), uint32(7), uint32(1), []byte{0x18}))
	c.Write(7, 5, []byte{0})
	want("enabled", 1)
	works(t, "choose nothing", c.Do(vt.SetIRQs, irq(bools|unmask, intx, 0, 1, 0)), nil)
	want("not chosen", 0)
	works(t, "choose it", c.Do(vt.SetIRQs, irq(bools|unmask, intx, 0, 1, 1)), nil)
	want("chosen", 1)
}

func TestNoLine(t *testing.T) {
	c := serve(t, func(f *Function) { f.Line, f.MSIX = nil, MSIX{} }).connect(t)
	works(t, "info", c.Do(vt.IRQInfo, vt.Cat(uint32(16), no, intx, no)), vt.Cat(uint32(16), no, intx, no))
	fails(t, "unmask", c.Do(vt.SetIRQs, irq(none|unmask, intx, 0, 1)), unix.EINVAL)
	works(t, "all of nothing", c.Do(vt.SetIRQs, irq(none|trigger, msix, 0, 0)), nil)
}

func TestBadInterrupts(t *testing.T) {
	d := serve(t)
	c := d.connect(t)
	v := c.NewVectors(16)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	before := eventfds(t)
	for name, r := range map[string]vt.Reply{
		"kind 5":          c.Do(vt.SetIRQs, irq(events|trigger, 5, 0, 1), v.FDs[0]),
		"kind 4":          c.Do(vt.SetIRQs, irq(events|trigger, 4, 0, 1), v.FDs[0]),
		"beyond":          c.Do(vt.SetIRQs, irq(events|trigger, msix, 70, 1), v.FDs[0]),
		"count":           c.Do(vt.SetIRQs, irq(events|trigger, msix, 69, 2), v.FDs[:2]...),
		"far":             c.Do(vt.SetIRQs, irq(events|trigger, msix, ^no, 2)),
		"too few":         c.Do(vt.SetIRQs, irq(events|trigger, msix, 0, 3), v.FDs[:2]...),
		"too many":        c.Do(vt.SetIRQs, irq(events|trigger, msix, 0, 1), v.FDs[:2]...),
		"no vectors":      c.Do(vt.SetIRQs, irq(events|trigger, msix, 0, 0)),
		"a pipe":          c.Do(vt.SetIRQs, irq(events|trigger, msix, 0, 2), v.FDs[0], int(w.Fd())),
		"no data":         c.Do(vt.SetIRQs, irq(trigger, msix, 0, 1)),
		"two data":        c.Do(vt.SetIRQs, irq(none|bools|trigger, msix, 0, 1, 1)),
		"no action":       c.Do(vt.SetIRQs, irq(none, msix, 0, 1)),
		"two actions":     c.Do(vt.SetIRQs, irq(none|mask|unmask, intx, 0, 1)),
		"unknown flag":    c.Do(vt.SetIRQs, irq(none|trigger|64, msix, 0, 1)),
		"mask MSI-X":      c.Do(vt.SetIRQs, irq(none|mask, msix, 0, 1)),
		"mask by eventfd": c.Do(vt.SetIRQs, irq(events|unmask, intx, 0, 1), v.FDs[0]),
		"mask nothing":    c.Do(vt.SetIRQs, irq(none|mask, intx, 0, 0)),
		"all from 1":      c.Do(vt.SetIRQs, irq(none|trigger, msix, 1, 0)),
		"all of bools":    c.Do(vt.SetIRQs, irq(bools|trigger, msix, 0, 0)),
		"bools":           c.Do(vt.SetIRQs, irq(bools|trigger, msix, 0, 2, 1)),
		"data of none":    c.Do(vt.SetIRQs, irq(none|trigger, msix, 0, 1, 1)),
		"fd of none":      c.Do(vt.SetIRQs, irq(none|trigger, msix, 0, 1), v.FDs[0]),
		"short":           c.Do(vt.SetIRQs, vt.Cat(uint32(20), events|trigger, msix)),
		"argsz":           c.Do(vt.SetIRQs, vt.Cat(uint32(19), events|trigger, msix, no, uint32(1)), v.FDs[0]),
	} {
		fails(t, name, r, unix.EINVAL)
	}
	if n := eventfds(t); n != before {
		t.Errorf("%d eventfds are open, %d before", n, before)
	}
	v.Assign(c, msix)
	v.Assign(c, msix) // again: the old ones are closed
	if n := eventfds(t); n != before+16 {
		t.Errorf("%d eventfds are open, want %d", n, before+16)
	}
	c.Close()
	eventually(t, "the eventfds are closed", func() bool { return eventfds(t) == before })
}
