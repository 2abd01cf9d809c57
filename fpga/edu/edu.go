// SPDX-License-Identifier: Apache-2.0

package edu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// What the device is.
const (
	Vendor      = 0x1234 // of PCI
	DeviceID    = 0x11e8
	AddressBits = 28 // of a bus address, unless QEMU's dma_mask says otherwise

	// BufferSize is how much of the device's buffer can be used: a transfer that ends at its last byte ends QEMU 7.2.
	BufferSize = 4088
)

const (
	regID        = 0x00
	regLiveness  = 0x04 // reads the complement of what was written
	regIRQStatus = 0x24
	regIRQAck    = 0x64
	regSource    = 0x80
	regDest      = 0x88
	regCount     = 0x90
	regCommand   = 0x98

	identifier   = 0x00ed // bits 15:0; above them the version
	commandRun   = 1 << 0
	commandToRAM = 1 << 1
	commandIRQ   = 1 << 2
	bufferAt     = 0x40000
	irqDMA       = 0x100
	gone         = ^uint32(0)
)

// Errors that callers tell apart.
var (
	ErrNotFound = errors.New("no edu device")
	ErrGone     = errors.New("registers read all ones: the device has left the bus")
	ErrBusy     = errors.New("the command does not end: its memory must not be reused")
	ErrMemory   = errors.New("memory does not fit the transfer")
)

// Config is what a device is opened with.
type Config struct {
	Registers  fpga.Registers // BAR 0
	Interrupts fpga.Interrupts
	// Watchdog is how often the command register is looked at without an interrupt; 0: 1 s.
	Watchdog time.Duration
	// StopBound is how long a command may go on when nobody wants it any more; 0: 5 s. QEMU's takes 100 ms.
	StopBound time.Duration
}

// A Device is an edu device.
type Device struct {
	cfg  Config
	idle chan struct{} // has an element when nobody uses the engine
}

// Open finds the device by its identifier and its liveness register.
func Open(cfg Config) (*Device, error) {
	if cfg.Watchdog <= 0 {
		cfg.Watchdog = time.Second
	}
	if cfg.StopBound <= 0 {
		cfg.StopBound = 5 * time.Second
	}
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

// Transfer copies all of mem, BufferSize bytes at most, to (H2C) or from (C2H) the beginning of the device's buffer: one
// command for each segment. It waits for its turn and for the end. After an error the engine is idle, unless the error wraps
// ErrBusy: then mem must stay mapped until another Transfer returns without ErrBusy.
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
	if err := d.settle(); err != nil { // whoever used it before
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

// command moves one segment. When ctx ends first it still waits for the device to let go of the memory.
func (d *Device) command(ctx context.Context, dir fpga.Direction, s fpga.Segment, buffer uint64) error {
	from, to, command := s.Addr, buffer, uint32(commandRun|commandIRQ)
	if dir == fpga.C2H {
		from, to, command = buffer, s.Addr, command|commandToRAM
	}
	r := d.cfg.Registers
	r.Write32(regSource, uint32(from)) // 32 bits are enough: the write sets the upper half to 0
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

// Settle waits until the engine is idle, StopBound at most; else the error wraps ErrBusy.
func (d *Device) Settle() error {
	select {
	case <-d.idle:
	case <-time.After(d.cfg.StopBound):
		return fmt.Errorf("edu: %w", ErrBusy)
	}
	defer func() { d.idle <- struct{}{} }()
	if err := d.settle(); err != nil {
		return fmt.Errorf("edu: %w", err)
	}
	return nil
}

// settle waits until no command runs. Its caller has taken the engine.
func (d *Device) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.StopBound)
	defer cancel()
	err := d.finish(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: not within %v", ErrBusy, d.cfg.StopBound)
	}
	return err
}

// finish waits for the end of the command. An interrupt is a hint to look, as is the watchdog's tick.
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
		tick, cancel := context.WithTimeout(ctx, d.cfg.Watchdog)
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
