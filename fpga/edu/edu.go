// SPDX-License-Identifier: Apache-2.0

package edu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// Properties of the device.
const (
	Vendor      = 0x1234 // PCI vendor ID
	DeviceID    = 0x11e8
	AddressBits = 28 // usable bits of a bus address, unless QEMU's option dma_mask changes them

	// BufferSize is the usable size of the device's buffer in bytes: a transfer that ends at the last byte crashes QEMU
	// 7.2.
	BufferSize = 4088
)

const (
	regID        = 0x00
	regLiveness  = 0x04 // reads as the complement of what was written
	regIRQStatus = 0x24
	regIRQAck    = 0x64
	regSource    = 0x80
	regDest      = 0x88
	regCount     = 0x90
	regCommand   = 0x98

	identifier   = 0x00ed // bits 15:0; the version is above them
	commandRun   = 1 << 0
	commandToRAM = 1 << 1
	commandIRQ   = 1 << 2
	bufferAt     = 0x40000
	irqDMA       = 0x100
	gone         = ^uint32(0)
)

// Errors that callers distinguish.
var (
	ErrNotFound = errors.New("no edu device")
	ErrGone     = errors.New("registers read all ones: the device has left the bus")
	ErrBusy     = errors.New("the command does not end: its memory must not be reused")
	ErrMemory   = errors.New("memory does not fit the transfer")
)

// Config configures a Device.
type Config struct {
	Registers  fpga.Registers // BAR 0
	Interrupts fpga.Interrupts
}

const (
	watchdog  = time.Second     // interval at which the command register is checked without an interrupt
	stopBound = 5 * time.Second // how long a command may still run after its caller gave up; QEMU needs 100 ms for one
)

// A Device is an edu device. Its methods may be called concurrently.
type Device struct {
	cfg  Config
	idle chan struct{} // holds an element while nobody uses the engine
}

// Open returns the device behind cfg.Registers, after checking its identifier and its liveness register.
func Open(cfg Config) (*Device, error) {
	id := cfg.Registers.Read32(regID)
	if id == gone || id&0xffff != identifier {
		return nil, fmt.Errorf("%w: register 0 reads %#08x, want 0x010000ed", ErrNotFound, id)
	}
	const probe = 0x12345678
	cfg.Registers.Write32(regLiveness, probe)
	if v := cfg.Registers.Read32(regLiveness); v != ^uint32(probe) {
		return nil, fmt.Errorf("%w: the liveness register reads %#08x, want %#08x", ErrNotFound, v, ^uint32(probe))
	}
	d := &Device{cfg: cfg, idle: make(chan struct{}, 1)}
	d.idle <- struct{}{}
	return d, nil
}

// Transfer copies all of mem, at most BufferSize bytes, to (H2C) or from (C2H) the start of the device's buffer, with
// one command for each segment. It waits until no other call uses the engine, and then for the end of the transfer.
// After an error the engine no longer uses mem, unless the error wraps ErrBusy or comes from Interrupts.Wait: then mem
// must stay mapped until Settle or a later Transfer succeeds.
func (d *Device) Transfer(ctx context.Context, dir fpga.Direction, mem fpga.Memory) error {
	if err := check(mem); err != nil {
		return fmt.Errorf("edu: %s: %w", dir, err)
	}
	select {
	case <-d.idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { d.idle <- struct{}{} }()
	if err := d.settle(); err != nil { // a previous user may have left a command running
		return fmt.Errorf("edu: before the transfer: %w", err)
	}
	at := uint64(bufferAt)
	for _, s := range mem.Segments {
		if s.Len == 0 {
			continue
		}
		if err := d.command(ctx, dir, s, at); err != nil {
			return fmt.Errorf("edu: %s of %d bytes at %#x: %w", dir, s.Len, s.Addr, err)
		}
		at += uint64(s.Len)
	}
	return nil
}

func check(mem fpga.Memory) error {
	if n := mem.Size(); n < 1 || n > BufferSize {
		return fmt.Errorf("%w: %d bytes, want 1 to %d", ErrMemory, n, BufferSize)
	}
	for _, s := range mem.Segments {
		if s.Len < 0 || s.Addr >= 1<<AddressBits || uint64(s.Len) > 1<<AddressBits-s.Addr {
			return fmt.Errorf("%w: %d bytes at bus address %#x, the device has %d address bits: the kernel module must know (its dma_bits)",
				ErrMemory, s.Len, s.Addr, AddressBits)
		}
	}
	return nil
}

// command moves one segment. Even if ctx ends first, it waits until the device has released the memory, or for
// stopBound, after which the error wraps ErrBusy.
func (d *Device) command(ctx context.Context, dir fpga.Direction, s fpga.Segment, buffer uint64) error {
	from, to, command := s.Addr, buffer, uint32(commandRun|commandIRQ)
	if dir == fpga.C2H {
		from, to, command = buffer, s.Addr, command|commandToRAM
	}
	r := d.cfg.Registers
	r.Write32(regSource, uint32(from)) // 32 bits are enough: the write clears the upper half
	r.Write32(regDest, uint32(to))
	r.Write32(regCount, uint32(s.Len))
	r.Write32(regCommand, command)
	err := d.finish(ctx)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
		if stop := d.settle(); stop != nil {
			err = fmt.Errorf("%w; %w", err, stop)
		}
	}
	return err
}

// Settle waits until nobody uses the engine and no command is running, for at most 5 s each; after that the error wraps
// ErrBusy.
func (d *Device) Settle() error {
	select {
	case <-d.idle:
	case <-time.After(stopBound):
		return fmt.Errorf("edu: %w", ErrBusy)
	}
	defer func() { d.idle <- struct{}{} }()
	if err := d.settle(); err != nil {
		return fmt.Errorf("edu: %w", err)
	}
	return nil
}

// settle waits until no command is running, for at most stopBound; after that the error wraps ErrBusy. The caller must
// have taken the engine.
func (d *Device) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopBound)
	defer cancel()
	err := d.finish(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: not within %v", ErrBusy, stopBound)
	}
	return err
}

// finish waits for the end of the command. An interrupt is only a hint to check, like the watchdog's tick.
func (d *Device) finish(ctx context.Context) error {
	r := d.cfg.Registers
	for {
		switch command := r.Read32(regCommand); {
		case command == gone:
			return ErrGone
		case command&commandRun == 0:
			if status := r.Read32(regIRQStatus); status != 0 && status != gone {
				r.Write32(regIRQAck, status)
			}
			return nil
		}
		tick, cancel := context.WithTimeout(ctx, watchdog)
		err := d.cfg.Interrupts.Wait(tick, 0)
		expired := tick.Err() != nil
		cancel()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case !expired:
			return err
		}
	}
}
