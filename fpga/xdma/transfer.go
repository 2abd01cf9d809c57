package xdma

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tegracast/fpga"
)

// A Transfer is a prepared memory-mapped transfer: its descriptors are made, and Run does it as often as wanted.
type Transfer struct {
	c        *channel
	memory   Coherent
	chain    chain
	segments int
	bytes    int
}

// NewTransfer prepares the copy of all of mem to (H2C) or from (C2H) the card address card. mem must stay mapped for
// the device until Close.
func (d *Device) NewTransfer(dir fpga.Direction, index int, mem fpga.Memory, card uint64) (*Transfer, error) {
	c, err := d.channel(dir, index, false)
	if err != nil {
		return nil, err
	}
	segments := pieces(mem.Segments)
	if len(segments) == 0 {
		return nil, c.errorf(ErrMemory, "no bytes to transfer")
	}
	parts := make([]part, len(segments))
	t := &Transfer{c: c, segments: len(segments)}
	for i, s := range segments {
		parts[i] = part{src: s.Addr, dst: card + uint64(t.bytes), n: s.Len}
		if dir == fpga.C2H {
			parts[i].src, parts[i].dst = parts[i].dst, parts[i].src
		}
		t.bytes += s.Len
	}
	parts[len(parts)-1].control = descStop | descCompleted | descEOP
	if t.memory, err = c.allocate("descriptors", len(parts)*descriptorSize); err != nil {
		return nil, err
	}
	t.chain = writeChain(t.memory.Bytes, t.memory.Segments[0].Addr, parts)
	return t, nil
}

// Result is what a transfer took.
type Result struct {
	Bytes    int
	Elapsed  time.Duration // from the doorbell to the completion seen by the CPU
	Counters Counters
}

// Run does the transfer and waits for its end. On an error, also ctx's, the channel has been stopped when Run
// returns, unless the error wraps ErrBusy.
func (t *Transfer) Run(ctx context.Context) (Result, error) {
	c := t.c
	c.clearCounters()
	begin := time.Now()
	err := c.start(t.chain.at(0), t.chain.adjacent(0))
	for done := false; err == nil && !done; {
		var status uint32
		status, err = c.wait(ctx)
		done = status&bitDescStopped != 0
	}
	r := Result{Bytes: t.bytes, Elapsed: time.Since(begin)}
	if err == nil {
		if n := c.read(regCompleted); int(n) != t.segments {
			err = c.errorf(ErrLost, "it stopped after %d of %d descriptors", n, t.segments)
		}
	}
	r.Counters = c.counters()
	if stopErr := c.stop(); stopErr != nil && !errors.Is(err, ErrGone) {
		err = errors.Join(err, stopErr)
	}
	if err != nil {
		return Result{}, fmt.Errorf("transfer of %d bytes: %w", t.bytes, err)
	}
	return r, nil
}

// Close frees the descriptors. The transfer must not run.
func (t *Transfer) Close() error { return t.memory.Close() }
