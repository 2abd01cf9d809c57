package mailbox

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tegracast/fpga"
)

// card is the other end, in the process: it answers when it is rung.
type card struct {
	words [1024]atomic.Uint32
	mu    sync.Mutex
	regs  map[[2]uint32]uint32 // by BAR and offset
	log   []fpga.HaltOp        // writes
	dead  bool
}

func newCard() *card {
	c := &card{regs: map[[2]uint32]uint32{}}
	c.words[MagicOff].Store(Magic)
	c.words[GenerationOff/4].Store(1)
	c.words[SizesOff/4+1].Store(0x10000)
	return c
}

func (c *card) Read32(off uint32) uint32     { return c.words[off/4].Load() }
func (c *card) Write32(off uint32, v uint32) { c.words[off/4].Store(v) }

// bell is the doorbell.
type bell struct{ c *card }

func (b bell) Read32(uint32) uint32 { return 0 }
func (b bell) Write32(off, v uint32) {
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if off != DoorbellOff || v != CardPeer<<16 || c.dead {
		return
	}
	for slot := uint32(SlotsOff); slot < SlotsOff+Slots*SlotSize; slot += SlotSize {
		if c.Read32(slot+RequestOff) == c.Read32(slot+ResponseOff) {
			continue
		}
		op, off, v := c.Read32(slot+OperationOff), c.Read32(slot+OffsetOff), c.Read32(slot+ValueOff)
		if op&0xff == OpWrite {
			c.regs[[2]uint32{op >> 8, off}] = v
			c.log = append(c.log, fpga.HaltOp{BAR: int(op >> 8), Offset: off, Value: v})
		}
		c.Write32(slot+ResultOff, c.regs[[2]uint32{op >> 8, off}])
		c.Write32(slot+ResponseOff, c.Read32(slot+RequestOff))
	}
}

func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCard()
		m, err := Open(Config{Shared: c, Doorbell: bell{c}})
		if err != nil {
			t.Fatal(err)
		}
		regs := m.BARs()[0].Registers
		regs.Write32(4, 7)
		if v := regs.Read32(4); v != 7 {
			t.Fatalf("read %d", v)
		}
		c.dead = true
		took := func() time.Duration {
			begin := time.Now()
			if v := regs.Read32(4); v != math.MaxUint32 {
				t.Errorf("a card that is gone reads %#x", v)
			}
			return time.Since(begin)
		}
		if d := took(); d < 5*time.Second {
			t.Errorf("gave up after %v", d)
		}
		if d := took(); d != 0 {
			t.Errorf("the second access took %v", d)
		}
		c.dead = false
		if d := took(); d != 0 {
			t.Errorf("a card that has not answered yet was waited for %v", d)
		}
		c.Write32(GenerationOff, 2)
		if v := regs.Read32(4); v != 7 {
			t.Errorf("the next card reads %#x", v)
		}
	})
}

// TestHaltList does the list as the kernel does, twice, while a driver uses its slot.
func TestHaltList(t *testing.T) {
	for n := 1; n <= HaltSlots; n++ {
		c := newCard()
		m, err := Open(Config{Shared: c, Doorbell: bell{c}})
		if err != nil {
			t.Fatal(err)
		}
		var want []fpga.HaltOp
		for i := range n {
			want = append(want, fpga.HaltOp{BAR: 1, Offset: uint32(0x100 * i), Value: 1})
		}
		list, err := m.HaltList(want)
		if err != nil || len(list) > 16 {
			t.Fatalf("%d accesses for %d writes, %v", len(list), n, err)
		}
		for round := range 2 {
			m.BARs()[0].Registers.Read32(4)
			if len(c.log) != 0 {
				t.Errorf("round %d: %+v was done before the list", round, c.log)
			}
			for _, op := range list {
				var regs fpga.Registers = c
				if op.BAR == DoorbellBAR {
					regs = bell{c}
				}
				if !op.Await {
					regs.Write32(op.Offset, op.Value)
				} else if v := regs.Read32(op.Offset); v != op.Value {
					t.Fatalf("round %d: %+v reads %d", round, op, v)
				}
			}
			if !slices.Equal(c.log, want) {
				t.Errorf("round %d: %+v was done, want %+v", round, c.log, want)
			}
			c.log = nil
		}
	}
	c := newCard()
	m, err := Open(Config{Shared: c, Doorbell: bell{c}})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, HaltSlots + 1} {
		if _, err := m.HaltList(make([]fpga.HaltOp, n)); !errors.Is(err, ErrHalt) {
			t.Errorf("%d writes: %v", n, err)
		}
	}
}
