// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Access selects how a file is read and written.
type Access uint8

const (
	Measured Access = iota // like Direct for reading; for writing the faster way on the file's mount, measured once
	Direct                 // O_DIRECT if the file system supports it
	Buffered               // through the page cache, unless the file was opened with O_DIRECT
)

// Config is the configuration of a Driver.
type Config struct {
	Settings *Settings // nil: LoadSettings("")
	Access   Access
	Calls    bool // use preadv2 and pwritev2 even if io_uring is available
	// Library is the name (LibraryName) or path of libcufile, which then performs the calls. "" selects compatibility
	// mode.
	Library string
	// Optional makes Prepare choose: libcufile performs the calls for files that are registered later if it can be opened
	// and accepts what Prepare is given, otherwise compatibility mode does. If the settings forbid that mode, Optional has
	// no effect.
	Optional bool
	Device   Context      // CUDA context of the memory, which libcufile needs
	Logger   *slog.Logger // nil: slog.Default()
}

// A Driver is an open instance of cuFile (cuFileDriverOpen). Its methods, and those of its files and batches, may be
// called concurrently. A process may open several independent drivers: DriverAlreadyOpen does not occur.
type Driver struct {
	log    *slog.Logger
	access Access
	choice choice
	mounts mounts
	trial  func(folder string, flags int, memory []byte) (time.Duration, error) // measures; replaced by tests

	closing atomic.Bool
	mu      sync.Mutex // guards the fields below
	closed  bool
	busy    sync.WaitGroup // calls that use the engine
	set     Settings
	back    backend // opens files
	mode    Mode
	files   map[int]*File       // by the caller's descriptor
	memory  map[uintptr]*region // by base
	streams map[uintptr]StreamFlags
	pinned  int64 // number of registered bytes
}

// Open opens the driver (§4.1.1), in compatibility mode (§2.3) unless Library is set. An error wraps DriverNotInitialized
// if that mode is needed and the settings forbid it, DriverInvalidProps if the settings cannot be read, InvalidValue if
// Library is set without a Device, ErrNoLibrary if libcufile is missing or too old, or libcufile's error.
func Open(c Config) (*Driver, error) {
	const call = "cuFileDriverOpen"
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Settings == nil {
		s, err := LoadSettings("")
		if err != nil {
			return nil, &Error{Call: call, Status: DriverInvalidProps, Why: err}
		}
		c.Settings = s
	}
	for _, key := range c.Settings.Unknown {
		c.Logger.Warn("cufile.json has an unknown key, which has no effect", "key", key)
	}
	d := &Driver{
		trial: trial, log: c.Logger, access: c.Access, set: *c.Settings,
		files: map[int]*File{}, memory: map[uintptr]*region{}, streams: map[uintptr]StreamFlags{},
	}
	if err := d.open(&c); err != nil {
		return nil, err
	}
	return d, nil
}

// open opens the back end of a configuration. If the library is optional, that is compatibility mode until Prepare chooses.
func (d *Driver) open(c *Config) error {
	allowed := c.Settings.AllowCompat
	if c.Library == "" && !allowed {
		return notAllowed(c.Settings.Path)
	}
	if c.Library != "" && !(c.Optional && allowed) {
		l, err := openLibrary(d, c)
		if err != nil && c.Optional {
			return fmt.Errorf("%w: %w", notAllowed(c.Settings.Path), err)
		} else if err != nil {
			return err
		}
		d.choice.library, d.back, d.mode = l, l, Mode{Library: true, Why: "as configured"}
		return nil
	}
	d.choice.compat = newCompat(d, c)
	d.back, d.mode = d.choice.compat, Mode{Why: "as configured"}
	switch {
	case c.Library == "":
		d.logUnused()
	case c.Device == nil:
		d.mode.Why = "memory is not CUDA's"
		d.logUnused()
	default:
		d.choice.optional, d.mode.Why = c, "libcufile was not asked yet"
	}
	return nil
}

// logUnused names the keys of cufile.json that compatibility mode does not use.
func (d *Driver) logUnused() {
	if list := d.set.Unused; len(list) > 0 {
		d.log.Info("these keys of cufile.json have no effect without NVIDIA's library", "keys", strings.Join(list, " "))
	}
}

// notAllowed returns the error that compatibility mode is needed but forbidden.
func notAllowed(path string) error {
	return &Error{
		Call: "cuFileDriverOpen", What: path, Status: DriverNotInitialized,
		Why: errors.New("nvidia-fs is not available, and properties.allow_compat_mode is false: set it to true"),
	}
}

// use begins a call that needs the driver open. done must follow unless use returns an error, which wraps
// DriverNotInitialized or DriverClosing.
func (d *Driver) use(call string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return &Error{Call: call, Status: DriverNotInitialized}
	case d.closing.Load():
		return &Error{Call: call, Status: DriverClosing}
	}
	d.busy.Add(1)
	return nil
}

func (d *Driver) done() { d.busy.Done() }

// Close closes the driver (cuFileDriverClose, §4.1.2). It waits for the transfers in progress, which may fail with
// DriverClosing. Files, buffers and streams are deregistered. Descriptors and memory remain the caller's. The error of
// a second Close wraps DriverNotInitialized.
func (d *Driver) Close() error {
	const call = "cuFileDriverClose"
	d.mu.Lock()
	if d.closed || d.closing.Load() {
		d.mu.Unlock()
		return &Error{Call: call, Status: DriverNotInitialized}
	}
	d.closing.Store(true)
	d.mu.Unlock()
	d.busy.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, f := range d.files {
		errs = append(errs, f.back.closeFile(f))
	}
	for _, r := range d.memory {
		errs = append(errs, r.back.dropBuffer(r))
	}
	d.closed = true
	clear(d.files)
	clear(d.memory)
	clear(d.streams)
	return errors.Join(append(errs, d.choice.close())...)
}

// Properties are the useful fields of CUfileDrvProps_t (§3.1.1, §4.1.3). Sizes are in KiB.
type Properties struct {
	Poll           bool   // whether transfers of up to PollThreshold are polled
	PollThreshold  uint64 // KiB
	MaxDirectIO    uint64 // largest piece of a transfer
	AllowCompat    bool   // compatibility mode is allowed
	MaxDeviceCache uint64 // for bounce buffers
	MaxPinned      uint64 // for registered buffers
	Features       Features
	URing          bool // transfers use io_uring
}

// Features are a driver's capabilities: CUfileFeatureFlags_t, whose values are bit numbers.
type Features uint

// The features.
const (
	DynamicRouting Features = 1 << iota
	Batches
	Streams
)

// Properties returns the driver's properties (cuFileDriverGetProperties; §3.2 calls it cuFileGetDriverProperties).
func (d *Driver) Properties() (Properties, error) {
	if err := d.use("cuFileDriverGetProperties"); err != nil {
		return Properties{}, err
	}
	defer d.done()
	return d.current().properties()
}

// SetPollMode sets whether transfers of up to threshold KiB, a multiple of 4, are polled (cuFileDriverSetPollMode,
// §4.1.4).
func (d *Driver) SetPollMode(poll bool, threshold uint64) error {
	return d.limit("cuFileDriverSetPollMode", poll, threshold, 0, func(s *Settings) { s.Poll, s.PollMax = poll, threshold })
}

// SetMaxDirectIOSize sets the largest piece of a transfer, in KiB, a multiple of 4 and not 0
// (cuFileDriverSetMaxDirectIOSize, §4.1.5).
func (d *Driver) SetMaxDirectIOSize(kb uint64) error {
	return d.limit("cuFileDriverSetMaxDirectIOSize", false, kb, 4, func(s *Settings) { s.MaxDirectIO = kb })
}

// SetMaxCacheSize limits the memory for bounce buffers, in KiB, a multiple of 4 and not 0 (cuFileDriverSetMaxCacheSize,
// §4.1.6).
func (d *Driver) SetMaxCacheSize(kb uint64) error {
	return d.limit("cuFileDriverSetMaxCacheSize", false, kb, 4, func(s *Settings) { s.MaxDeviceCache = kb })
}

// SetMaxPinnedMemSize limits the memory that may be registered, in KiB, a multiple of 4
// (cuFileDriverSetMaxPinnedMemSize, §4.1.7). The largest uint64 means no limit.
func (d *Driver) SetMaxPinnedMemSize(kb uint64) error {
	if kb == ^uint64(0) {
		kb = maxKB
	}
	return d.limit("cuFileDriverSetMaxPinnedMemSize", false, kb, 0, func(s *Settings) { s.MaxPinned = kb })
}

// limit changes one size of the settings to kb KiB. If kb is not a multiple of 4, below least or above maxKB, the error
// wraps DriverUnsupportedLimit.
func (d *Driver) limit(call string, poll bool, kb, least uint64, set func(*Settings)) error {
	if err := d.use(call); err != nil {
		return err
	}
	defer d.done()
	if kb%4 != 0 || kb < least || kb > maxKB {
		return &Error{
			Call: call, Status: DriverUnsupportedLimit,
			Why: fmt.Errorf("%d KiB: must be a multiple of 4, at least %d and at most %d", kb, least, uint64(maxKB)),
		}
	}
	if err := d.current().set(call, poll, kb); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	set(&d.set)
	return nil
}

// settings returns the current settings.
func (d *Driver) settings() Settings {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.set
}
