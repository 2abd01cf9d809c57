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

// ErrConfig is wrapped by the errors of a Config that contradicts the card.
var ErrConfig = errors.New("no such card")

// What the card is when Config does not say.
const (
	Vendor = 0x10ee   // Xilinx
	Device = 0x7028   // PCI Express of generation 2 with 8 lanes
	Class  = 0x058000 // memory controller, other

	// Vectors is how many the card's vector registers can name.
	Vectors = 32

	dmaBAR    = 1 // of model.Device.BARs, which are 3
	cardBARs  = 3
	msixTable = 0x8000 // in the DMA BAR, PG195
	msixPBA   = 0x8fe0
)

// Config is a card.
type Config struct {
	// Card is the model. Its Bus is left nil: it is the machine's memory. Its MSI may be 0: it follows the function's, when
	// that has no MSI-X.
	Card model.Config

	// Function is what the machine sees. No vendor is Vendor and Device, no class is Class.
	//
	// Its BARs are, in this order, the card's user, DMA and bypass BAR (model.Device.BARs); they come without registers, and
	// the last ones may be left out. None: three BARs of 64 KiB and 32 bits. Of MSIX only Vectors is given, up to 32: the
	// table lies in the DMA BAR. Line, Reset and Present are the card's own.
	//
	// Neither MSIX nor MSI nor INTx: MSI-X and MSI, 32 vectors each.
	Function vfiouser.Function
	INTx     bool // the function has an interrupt line, INTA#
}

// Endpoint is a slot with the card in it. Its methods may be called concurrently.
type Endpoint struct {
	cfg    Config
	memory vfiouser.Memory
	server *vfiouser.Server
	served chan error

	mu   sync.Mutex // held while a card comes or goes
	card atomic.Pointer[card]
	away atomic.Bool // the slot is empty

	refusals atomic.Bool // are expected
}

// card is what is in the slot.
type card struct {
	device  *model.Device
	bars    []fpga.BAR
	running sync.WaitGroup
	stop    context.CancelFunc
}

// New puts a card into a slot, which waits for a machine. The caller closes it. An error wraps ErrConfig, or
// vfiouser.ErrFunction.
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

// describe completes what the configuration leaves to the card.
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

// layOut puts the card's registers into the BARs.
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

// window is a BAR of whichever card is in the slot.
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

// Path is the socket for QEMU (vfiouser.Server.Path).
func (e *Endpoint) Path() string { return e.server.Path() }

// Books are the server's.
func (e *Endpoint) Books() vfiouser.Books { return e.server.Books() }

// Card is the model that is in the slot, nil when it was killed or removed.
func (e *Endpoint) Card() *model.Device {
	if c := e.card.Load(); c != nil {
		return c.device
	}
	return nil
}

// Insert puts a new card, in its reset state, in the place of one that was killed or removed. The function's
// configuration space is as it was.
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
	c.running.Go(func() { _ = device.Run(ctx) }) // it fails only the second time
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

// Kill ends the card's logic: its registers read all ones, and there is no DMA when it returns. The configuration space
// answers, as that of a core in hardware does.
func (e *Endpoint) Kill() { e.end(false) }

// Remove takes the card off the bus without a word: registers and configuration space read all ones, and there is no DMA
// when it returns. QEMU's port does not see it and says that the link is up; Linux waits a minute for such a function
// after a reset.
func (e *Endpoint) Remove() { e.end(true) }

func (e *Endpoint) end(away bool) {
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

// ExpectRefusals says that the machine will refuse accesses of the card, and that Close is not to complain.
func (e *Endpoint) ExpectRefusals() { e.refusals.Store(true) }

// Close ends card and connection. The error is that of the socket, or names an access that a machine has refused, unless that is
// expected: it wraps vfiouser.ErrUnmapped.
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
