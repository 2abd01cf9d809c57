package mailbox

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"tegracast/fpga"
)

// Errors that callers tell apart.
var (
	ErrNotFound = errors.New("no card behind the mailbox")
	ErrHalt     = errors.New("halt list does not fit the mailbox")
)

// gone is what is read of a card that is not there.
const gone = math.MaxUint32

// Config is how a card is reached.
type Config struct {
	Shared   fpga.Registers // BAR 2
	Doorbell fpga.Registers // BAR 0
	// Patience is how long an answer is waited for before the card counts as gone; 0: 5 s.
	Patience time.Duration
}

// A Card is a user's end of a mailbox. Accesses are done one after the other. When the card does not answer they read
// all ones, at once from then on, until it answers after all or another one has come.
type Card struct {
	cfg Config

	mu   sync.Mutex
	away uint32 // generation that did not answer; 0: all is well
}

// Open finds the card.
func Open(cfg Config) (*Card, error) {
	if cfg.Patience <= 0 {
		cfg.Patience = 5 * time.Second
	}
	if magic, n := cfg.Shared.Read32(MagicOff), cfg.Shared.Read32(GenerationOff); magic != Magic || n == 0 {
		return nil, fmt.Errorf("%w: the shared memory begins with %#08x, %#x, want %#08x and the card's generation: start the card's process",
			ErrNotFound, magic, n, uint32(Magic))
	}
	return &Card{cfg: cfg}, nil
}

// BARs are the card's.
func (c *Card) BARs() (list []fpga.BAR) {
	for i := range bars {
		if size := c.cfg.Shared.Read32(SizesOff + uint32(4*i)); size > 0 && size != gone {
			list = append(list, fpga.BAR{Index: i, Size: int(size), Registers: window{c, uint32(i) << 8}})
		}
	}
	return list
}

// window is a BAR of the card.
type window struct {
	card *Card
	bar  uint32 // in the operation word
}

func (w window) Read32(off uint32) uint32 { return w.card.call(OpRead|w.bar, off, 0) }
func (w window) Write32(off, v uint32)    { w.card.call(OpWrite|w.bar, off, v) }

func (c *Card) slot(off uint32) uint32       { return c.cfg.Shared.Read32(SlotsOff + User*SlotSize + off) }
func (c *Card) setSlot(off uint32, v uint32) { c.cfg.Shared.Write32(SlotsOff+User*SlotSize+off, v) }

// call has the card do one access.
func (c *Card) call(operation, off, v uint32) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.absent() {
		return gone
	}
	sequence := c.slot(ResponseOff) + 1
	c.setSlot(OperationOff, operation)
	c.setSlot(OffsetOff, off)
	c.setSlot(ValueOff, v)
	c.setSlot(RequestOff, sequence)
	c.cfg.Doorbell.Write32(DoorbellOff, ring)
	if !c.answered(sequence) {
		c.away = c.cfg.Shared.Read32(GenerationOff)
		return gone
	}
	return c.slot(ResultOff)
}

// absent says whether the card that did not answer is still away.
func (c *Card) absent() bool {
	if c.away != 0 && (c.cfg.Shared.Read32(GenerationOff) != c.away || c.slot(ResponseOff) == c.slot(RequestOff)) {
		c.away = 0
	}
	return c.away != 0
}

// answered waits for the answer, soon in growing sleeps: the card needs processor time, too.
func (c *Card) answered(sequence uint32) bool {
	const looks, most = 20, time.Millisecond
	var deadline time.Time
	pause := 20 * time.Microsecond
	for i := 0; c.slot(ResponseOff) != sequence; i++ {
		switch now := time.Now(); {
		case i == 0:
			deadline = now.Add(c.cfg.Patience)
		case now.After(deadline):
			return false
		case i > looks:
			time.Sleep(pause)
			pause = min(2*pause, most)
		}
	}
	return true
}

// HaltList makes the list by which the card does writes, HaltSlots at most, for somebody who can do nothing but write: each
// write waits in a slot of its own as a request that is answered, and the list takes the answers back and rings. It works as
// often as it is done. The card answers in the order of the slots.
func (c *Card) HaltList(writes []fpga.HaltOp) ([]fpga.HaltOp, error) {
	if len(writes) < 1 || len(writes) > HaltSlots {
		return nil, fmt.Errorf("%w: %d writes to halt the card, the mailbox has room for 1 to %d", ErrHalt, len(writes), HaltSlots)
	}
	const answered, pending = 0, 1 // the sequence number of these slots stays 0
	var list []fpga.HaltOp
	var response uint32
	for i, w := range writes {
		slot := uint32(SlotsOff + (Halt+i)*SlotSize)
		c.cfg.Shared.Write32(slot+OperationOff, OpWrite|uint32(w.BAR)<<8)
		c.cfg.Shared.Write32(slot+OffsetOff, w.Offset)
		c.cfg.Shared.Write32(slot+ValueOff, w.Value)
		response = slot + ResponseOff
		list = append(list, fpga.HaltOp{BAR: SharedBAR, Offset: response, Value: pending})
	}
	return append(list, fpga.HaltOp{BAR: DoorbellBAR, Offset: DoorbellOff, Value: ring},
		fpga.HaltOp{BAR: SharedBAR, Offset: response, Value: answered, Await: true}), nil
}
