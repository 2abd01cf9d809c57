// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// Device is a PCI Express function driven by the kernel module tegra_p2p: an open /dev/tegra_p2pN. It implements Pinner
// and Fencer. A driver for the function's engine builds on its BARs and interrupts. All methods may be called
// concurrently.
type Device struct {
	path string
	drv  driver
	what uapi.Info // as of Open
	bars []*Window

	vectors []vector      // interrupt vectors by number
	wakers  []*eventfd    // all eventfds being read
	gone    chan struct{} // closed when the function has gone
	closing chan struct{} // closed by Close
	readers sync.WaitGroup

	// pinning is held for reading while a pin is made, so that a search for revoked pins does not miss one that the
	// module knows already but the table does not.
	pinning sync.RWMutex

	revoking sync.Mutex // held while pins are revoked, and by Reset
	errors   uint32     // Info.Errors up to which pins have been revoked; guarded by revoking

	mu       sync.Mutex
	closed   bool
	goneOnce sync.Once
	cookie   uint64 // of the latest pin
	pins     map[*devicePin]struct{}
	coherent map[*deviceMemory]struct{}
}

// Open opens a device file of the module, such as /dev/tegra_p2p0, maps its BARs and enables its interrupts. The error
// wraps ErrNoDevice (and says what is missing), ErrInUse, ErrVersion, ErrGone, or a system error.
func Open(path string) (*Device, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	return newDevice(path, f)
}

// newDevice creates a device from an open driver, which it closes on an error.
func newDevice(path string, drv driver) (*Device, error) {
	d := &Device{
		path: path, drv: drv, gone: make(chan struct{}), closing: make(chan struct{}),
		pins: map[*devicePin]struct{}{}, coherent: map[*deviceMemory]struct{}{},
	}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Device) open() error {
	var err error
	if d.what, err = d.drv.info(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNoDevice, d.path, err)
	}
	switch {
	case d.what.APIVersion != uapi.APIVersion:
		return fmt.Errorf("%w: the module of %s has version %d of its interface, this program has %d: install module and program of one release",
			ErrVersion, d.path, d.what.APIVersion, uapi.APIVersion)
	case d.what.PinAlign != PageSize:
		return fmt.Errorf("%w: %s pins multiples of %d bytes, this program of %d: boot a kernel with 4 KiB pages",
			ErrVersion, d.path, d.what.PinAlign, PageSize)
	}
	d.errors = d.what.Errors
	if err := d.mapBARs(); err != nil {
		return err
	}
	return d.listen()
}

// Info returns the properties of the function as the module reported them when d was opened.
func (d *Device) Info() uapi.Info { return d.what }

// Fenced implements Fencer. A function that has gone, or whose Device is closed, counts as fenced, and the generation
// may be 0: Resume then returns the reason.
func (d *Device) Fenced() (generation uint64, fenced bool) {
	info, err := d.drv.info()
	if err != nil {
		return 0, true
	}
	return info.FenceGen, info.State != uapi.StateLive
}

// Resume implements Fencer. The error wraps ErrGeneration, ErrGone, ErrClosed, EIO for a function that has lost its
// state and does not respond yet, or another error of the module.
func (d *Device) Resume(generation uint64) error {
	d.endRevoked() // report losses first, so that what is pinned afterwards stays
	_, err := d.drv.control(uapi.ControlResume, generation)
	return d.wrap(err, "resume generation %d", generation)
}

// Fence implements Fencer.
func (d *Device) Fence() error {
	_, err := d.drv.control(uapi.ControlFence, 0)
	return d.wrap(err, "fence")
}

// Reset resets the function (function level reset). Afterwards it is fenced, and its registers are in their reset
// state. The error wraps EOPNOTSUPP if the function has no such reset, ErrGone, ErrClosed, or another error of the
// module.
func (d *Device) Reset() error {
	d.revoking.Lock()
	defer d.revoking.Unlock()
	_, err := d.drv.control(uapi.ControlReset, 0)
	if info, infoErr := d.drv.info(); err == nil && infoErr == nil {
		d.errors = info.Errors // the caller of Reset keeps its pins
	}
	return d.wrap(err, "reset")
}

// SetHalt gives the module a list of register accesses, at most uapi.HaltOps, that stop the function's engine when
// memory is revoked; an empty list clears it. The module takes revoked memory away from the function itself, so the
// memory's protection does not depend on the list.
func (d *Device) SetHalt(ops []uapi.HaltOp) error {
	return d.wrap(d.drv.setHalt(ops), "halt list of %d accesses", len(ops))
}

// Close takes all memory away from the function, ends all waits and closes the file. The error lists the pins and the
// coherent memory that were not released, with the stacks that created them. Such pins are revoked; such coherent
// memory is replaced with ordinary memory until its own Close. The error of a second Close wraps ErrClosed.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return fmt.Errorf("%s: %w", d.path, ErrClosed)
	}
	d.closed = true
	d.mu.Unlock()
	close(d.closing)
	for _, w := range d.wakers {
		w.close()
	}
	d.readers.Wait()
	d.pinning.Lock() // afterwards, every pin being made is in the table
	leaks := d.leaks()
	d.pinning.Unlock()
	errs := []error{d.abandonCoherent()}
	for _, w := range d.bars {
		errs = append(errs, w.unmap())
	}
	errs = append(errs, d.drv.close()) // ends every pin
	for _, p := range d.livePins() {
		p.revoke(ReasonUnplug)
	}
	return errors.Join(append(leaks, errs...)...)
}

// owned describes a pin or coherent memory that its user must release, for the leak check.
type owned struct {
	what  string
	size  int
	stack []byte
}

func newOwned(what string, size int) owned { return owned{what, size, debug.Stack()} }

func (o owned) leak(path string) error {
	return fmt.Errorf("%s: leaked %s of %d bytes, made by:\n%s", path, o.what, o.size, o.stack)
}

func (d *Device) leaks() (leaks []error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.pins {
		leaks = append(leaks, p.leak(d.path))
	}
	for m := range d.coherent {
		leaks = append(leaks, m.leak(d.path))
	}
	slices.SortFunc(leaks, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return leaks
}

func (d *Device) livePins() (list []*devicePin) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.pins {
		list = append(list, p)
	}
	return list
}
