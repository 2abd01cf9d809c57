// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tegracast/tegracast/fpga"
)

// A Transfer is a prepared memory-mapped transfer: its descriptors exist, and Run can execute it repeatedly.
type Transfer struct {
	c        *channel
	memory   Coherent // descriptors, and the poll-mode write-back
	chain    chain
	poll     uint64 // bus address of the poll-mode write-back
	wait     waiter
	segments int
	bytes    int
	stuck    atomic.Bool // the engine may still use the descriptors
}

// NewTransfer prepares a copy of all of mem to (H2C) or from (C2H) the card address card. mem must stay mapped for the
// device until Close.
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
	t := &Transfer{c: c, segments: len(segments), wait: waiter{c: c}}
	for i, s := range segments {
		parts[i] = part{src: s.Addr, dst: card + uint64(t.bytes), n: s.Len}
		if dir == fpga.C2H {
			parts[i].src, parts[i].dst = parts[i].dst, parts[i].src
		}
		t.bytes += s.Len
	}
	parts[len(parts)-1].control = descStop | descCompleted | descEOP
	word := len(parts) * descriptorSize
	if t.memory, err = c.allocate("descriptors", word+descriptorSize); err != nil {
		return nil, err
	}
	t.chain = writeChain(t.memory.Bytes, t.memory.Segments[0].Addr, parts)
	t.poll = t.chain.at(len(parts))
	if d.cfg.Poll {
		t.wait.word = (*uint32)(unsafe.Pointer(&t.memory.Bytes[word]))
	}
	return t, nil
}

// Result describes a completed transfer.
type Result struct {
	Bytes    int
	Elapsed  time.Duration // from the start of the channel until the CPU saw the completion
	Counters Counters
}

// Run executes the transfer and waits for its end. If ctx ends first, the channel is stopped. If the error wraps
// ErrBusy, another transfer or ring uses the channel, or the channel did not stop: then the memory must stay mapped
// until Device.Recover, another Run or Close returns nil. After any other error but ErrGone the channel has been
// stopped and can be used again.
func (t *Transfer) Run(ctx context.Context) (Result, error) {
	c := t.c
	r := Result{Bytes: t.bytes}
	if err := c.claim(); err != nil {
		return r, err
	}
	defer c.release()
	if err := c.ready(); err != nil {
		return r, fmt.Errorf("transfer of %d bytes: %w", t.bytes, err)
	}
	t.wait.clear()
	c.clearCounters()
	begin := time.Now()
	err := c.start(t.chain.at(0), t.chain.adjacent(0), t.poll)
	if err == nil {
		err = t.finish(ctx)
	}
	r.Elapsed = time.Since(begin)
	if err == nil {
		r.Counters, err = c.counters()
	}
	if !errors.Is(err, ErrGone) {
		stopErr := c.stop(stopBound, nil)
		t.stuck.Store(errors.Is(stopErr, ErrBusy))
		err = errors.Join(err, stopErr)
	}
	if err != nil {
		return Result{}, fmt.Errorf("transfer of %d bytes: %w", t.bytes, err)
	}
	return r, nil
}

// finish waits until the engine has stopped at the last descriptor, and checks that it completed all of them. A
// poll-mode write-back may be stale, so only the status counts.
func (t *Transfer) finish(ctx context.Context) error {
	c := t.c
	for {
		hint, err := t.wait.wait(ctx)
		if err != nil {
			return err
		}
		status, err := c.takeStatus()
		if err != nil {
			return err
		}
		t.wait.confirm(status&bitDescStopped != 0)
		if status&bitDescStopped != 0 {
			break
		}
		if !hint {
			if err := c.running("a transfer was waited for"); err != nil {
				return err
			}
		}
	}
	n, err := c.completed()
	if err == nil && n != uint32(t.segments) {
		err = c.errorf(ErrLost, "it stopped after %d of %d descriptors", n, t.segments)
	}
	return err
}

// Close frees the descriptors. The transfer must not be running. After a Run that could not stop the channel, Close
// tries again, and frees nothing if that fails, unless the device has gone.
func (t *Transfer) Close() error {
	if t.stuck.Load() {
		if err := t.c.dev.Recover(context.Background(), t.c.dir, t.c.index); err != nil && !errors.Is(err, ErrGone) {
			return fmt.Errorf("close: %w", err)
		}
		t.stuck.Store(false)
	}
	return t.memory.Close()
}

// Abandon frees the descriptors of a transfer whose engine does not stop, under the same conditions as Ring.Abandon.
func (t *Transfer) Abandon() error {
	t.stuck.Store(false)
	return t.memory.Close()
}
