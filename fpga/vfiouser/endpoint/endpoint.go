// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/vfiouser"
)

// ErrConfig is wrapped by errors about an invalid Config, and by the error of Insert if the slot has a card.
var ErrConfig = errors.New("no such card")

// Default properties of the card.
const (
	Vendor = 0x10ee   // Xilinx
	Device = 0x7028   // PCI Express of generation 2 with 8 lanes
	Class  = 0x058000 // memory controller, other

	// Vectors is the number of vectors that the card's vector registers can name.
	Vectors = 32

	dmaBAR    = 1 // index of the DMA BAR in model.Device.BARs
	cardBARs  = 3
	msixTable = 0x8000 // in the DMA BAR, PG195
	msixPBA   = 0x8fe0
)

// Config is the configuration of a card.
type Config struct {
	// Card is the model. Its Bus must be nil, and is set to the machine's memory. If its MSI is 0 and the function has
	// no MSI-X, MSI is set to the function's.
	Card model.Config

	// Function is the function as seen by the machine. Without a vendor it gets Vendor, Device and a default subsystem;
	// without a class it gets Class.
	//
	// Its BARs are, in this order, the card's user, DMA and bypass BAR (model.Device.BARs), given without registers and
	// of at least 64 KiB. The bypass BAR may be omitted. Without BARs there are three of 64 KiB and 32 bits. In MSIX
	// only Vectors may be set, up to 32: the table is in the DMA BAR. Reset, Present and, with INTx, Line are set to
	// the card's.
	//
	// If MSIX, MSI and INTx are all unset, the function has MSI-X and MSI with 32 vectors each.
	Function vfiouser.Function
	INTx     bool // the function has an interrupt line, INTA#
}

// Endpoint is a slot with a card. Its methods may be called concurrently.
type Endpoint struct {
	cfg    Config
	memory vfiouser.Memory
	server *vfiouser.Server
	served chan error

	mu   sync.Mutex // held while a card is inserted or removed
	card atomic.Pointer[card]
	away atomic.Bool // Remove has emptied the slot, and Insert was not called since

	refusals atomic.Bool // refusals are expected
}

type card struct {
	device  *model.Device
	bars    []fpga.BAR
	running sync.WaitGroup
	stop    context.CancelFunc
}

// New returns a slot with a card, which waits for a machine. The caller must close the Endpoint. The error wraps
// ErrConfig or vfiouser.ErrFunction, or is that of the socket.
func New(cfg Config) (*Endpoint, error) {
	e := &Endpoint{cfg: cfg, served: make(chan error, 1)}
	f, err := e.describe()
	if err != nil {
		return nil, err
	}
	if e.server, err = vfiouser.New(f, &e.memory); err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	if err := e.Insert(); err != nil {
		e.server.Close()
		return nil, err
	}
	go func() { e.served <- e.server.Run(context.Background()) }()
	return e, nil
}

// describe returns the configured function with defaults and the card's callbacks and BARs. It also sets the card's Bus
// and, without MSI-X, its MSI.
func (e *Endpoint) describe() (f vfiouser.Function, err error) {
	f = e.cfg.Function
	if e.cfg.Card.Bus != nil {
		return f, fmt.Errorf("endpoint: %w: Card.Bus is set, leave it nil", ErrConfig)
	}
	e.cfg.Card.Bus = &e.memory
	if f.Vendor == 0 {
		f.Vendor, f.Device, f.SubVendor, f.SubDevice = Vendor, Device, Vendor, 7
	}
	if f.Class == 0 {
		f.Class = Class
	}
	if f.MSIX.Vectors == 0 && f.MSI == 0 && !e.cfg.INTx {
		f.MSIX.Vectors, f.MSI = Vectors, Vectors
	}
	if f.MSIX.Vectors == 0 && e.cfg.Card.MSI == 0 {
		e.cfg.Card.MSI = f.MSI
	}
	if e.cfg.INTx {
		f.Line = func() bool { c := e.card.Load(); return c != nil && c.device.Line() }
	}
	f.Reset = func() {
		if c := e.card.Load(); c != nil {
			c.device.Reset()
		}
	}
	f.Present = func() bool { return !e.away.Load() }
	return f, e.layOut(&f)
}

// layOut connects the card's registers to the BARs, and places the MSI-X table.
func (e *Endpoint) layOut(f *vfiouser.Function) error {
	f.BARs = slices.Clone(f.BARs)
	if len(f.BARs) == 0 {
		f.BARs = []vfiouser.BAR{{Index: 0, Size: model.BARSize}, {Index: 1, Size: model.BARSize}, {Index: 2, Size: model.BARSize}}
	}
	if len(f.BARs) <= dmaBAR || len(f.BARs) > cardBARs {
		return fmt.Errorf("endpoint: %w: %d BARs, want 2 or 3: user, DMA, bypass", ErrConfig, len(f.BARs))
	}
	for i := range f.BARs {
		b := &f.BARs[i]
		if b.Registers != nil || b.Backed != 0 || b.Size < model.BARSize {
			return fmt.Errorf("endpoint: %w: BAR %d of %d bytes: want at least %d, without registers", ErrConfig, b.Index, b.Size, model.BARSize)
		}
		b.Registers, b.Backed = window{e, i}, model.BARSize
	}
	if x := &f.MSIX; x.Vectors > 0 {
		if x.Vectors > Vectors || x.BAR != 0 || x.Table != 0 || x.PBA != 0 {
			return fmt.Errorf("endpoint: %w: MSI-X %+v: want up to %d vectors; the table's place is the card's", ErrConfig, *x, Vectors)
		}
		x.BAR, x.Table, x.PBA = f.BARs[dmaBAR].Index, msixTable, msixPBA
	}
	return nil
}

// window is a BAR of the card that is currently in the slot. Without a card it reads as all ones.
type window struct {
	e   *Endpoint
	bar int
}

func (w window) Read32(off uint32) uint32 {
	if c := w.e.card.Load(); c != nil {
		return c.bars[w.bar].Registers.Read32(off)
	}
	return math.MaxUint32
}

func (w window) Write32(off, v uint32) {
	if c := w.e.card.Load(); c != nil {
		c.bars[w.bar].Registers.Write32(off, v)
	}
}

// Path returns the socket's path for QEMU (vfiouser.Server.Path).
func (e *Endpoint) Path() string { return e.server.Path() }

// Books returns the server's counters.
func (e *Endpoint) Books() vfiouser.Books { return e.server.Books() }

// Card returns the model in the slot, or nil after Kill or Remove.
func (e *Endpoint) Card() *model.Device {
	if c := e.card.Load(); c != nil {
		return c.device
	}
	return nil
}

// Insert inserts a new card, in its reset state, after the previous one was killed or removed. The function's
// configuration space is unchanged. An error wraps ErrConfig.
func (e *Endpoint) Insert() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.card.Load() != nil {
		return fmt.Errorf("endpoint: %w: the slot has a card, remove it first", ErrConfig)
	}
	device, err := model.New(e.cfg.Card)
	if err != nil {
		return fmt.Errorf("endpoint: %w: %w", ErrConfig, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &card{device: device, bars: device.BARs(), stop: cancel}
	c.running.Go(func() { _ = device.Run(ctx) }) // fails only when called twice
	for v := range Vectors {
		c.running.Go(func() {
			for device.Interrupts().Wait(ctx, v) == nil {
				e.server.Raise(v)
			}
		})
	}
	e.card.Store(c)
	e.away.Store(false)
	return nil
}

// Kill stops the card's logic. Its registers read as all ones, and there is no DMA after Kill returns. The configuration
// space still answers, like that of a hardware core.
func (e *Endpoint) Kill() { e.removeCard(false) }

// Remove takes the card off the bus without notice. Registers and configuration space read as all ones, and there is no
// DMA after Remove returns. QEMU's port does not notice and reports that the link is up. After a reset Linux waits a
// minute for such a function.
func (e *Endpoint) Remove() { e.removeCard(true) }

func (e *Endpoint) removeCard(away bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if away {
		e.away.Store(true)
	}
	if c := e.card.Swap(nil); c != nil {
		c.stop()
		c.running.Wait()
	}
}

// ExpectRefusals announces that the machine will refuse accesses of the card, so that Close does not report them.
func (e *Endpoint) ExpectRefusals() { e.refusals.Store(true) }

// Close closes the card and the connection. It must be called only once. The error is that of the socket. If
// Books.Wrong is not 0, and refusals are not expected, the error also names the latest refused access and wraps
// vfiouser.ErrUnmapped.
func (e *Endpoint) Close() error {
	e.Kill()
	e.server.Close()
	err := <-e.served
	if b := e.Books(); b.Wrong > 0 && !e.refusals.Load() {
		return errors.Join(err, fmt.Errorf("endpoint: %w: %d accesses were refused that nobody expects, last: %+v",
			vfiouser.ErrUnmapped, b.Wrong, b.LastRefused[len(b.LastRefused)-1]))
	}
	return err
}
