// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// halfway is an engine that performs half of each transfer in pieces, as on a nearly full disk.
type halfway struct {
	engine
	short        bool
	whole, parts atomic.Int32 // transfers started, in one piece and in several
}

func (h *halfway) start(list []*transfer) {
	for _, t := range list {
		if t.vector == nil {
			h.whole.Add(1)
			continue
		}
		h.parts.Add(1)
		if h.short {
			t.vector = t.vector[:1]
		}
	}
	h.engine.start(list)
}

// TestGathered checks that writes that continue each other in a file are combined into one system call, that others are
// not, and that the rest of an incomplete call is written as well.
func TestGathered(t *testing.T) {
	disk := t.TempDir()
	for _, calls := range []bool{false, true} {
		for _, short := range []bool{false, true} {
			s := &site{config: Config{Calls: calls}, folder: disk, flags: unix.O_DIRECT, memory: memory}
			if !s.hasDirect(t) {
				return
			}
			d := s.open(t, nil)
			c := d.current().(*compat)
			e := &halfway{engine: c.engine, short: short}
			c.engine = e
			mem, base := s.memory(t, 1<<20)
			pattern(mem)
			f := s.handle(t, d, os.O_RDWR)
			op := func(in, at, size int) Op {
				return Op{File: f, Write: true, Base: base, Offset: int64(in), FileOffset: int64(at), Size: size}
			}
			const k = 1 << 12
			for i, event := range s.done(t, d, []Op{op(20*k, 0, k), op(0, k, 16*k), op(40*k, 17*k, 2*k), op(50*k, 30*k, k)}) {
				if event.Status != Complete || event.Err != nil {
					t.Fatalf("transfer %d: %+v", i, event)
				}
			}
			holds(t, f, 0, slices.Concat(mem[20*k:21*k], mem[:16*k], mem[40*k:42*k], make([]byte, 11*k), mem[50*k:51*k]))
			parts, whole := e.parts.Load(), e.whole.Load()
			if more := map[bool]int32{true: 3}[short]; parts != 1 || whole < 1+more {
				t.Errorf("short %v: %d transfers in pieces, %d in one", short, parts, whole)
			}
		}
	}
}
