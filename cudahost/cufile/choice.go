// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

// A Mode is the way in which a driver transfers.
type Mode struct {
	Library bool   // by libcufile; otherwise in compatibility mode
	Why     string // the reason, for people
}

// Mode returns the way in which files that are registered now are transferred.
func (d *Driver) Mode() Mode {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mode
}

// current returns the back end that opens files now.
func (d *Driver) current() backend {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.back
}

// A choice holds the back ends of a driver, and chooses between them if the library is optional.
type choice struct {
	mu       sync.Mutex // held during a trial
	optional *Config    // to open the library with; nil: it is not optional, or was tried
	library  *library   // nil: not open
	compat   *compat    // nil: the library is not optional
	refused  bool       // the library has refused a path
}

// choose lets libcufile try a path. If the library is optional, choose selects the back end accordingly. Otherwise it
// returns the library's error.
func (d *Driver) choose(path string, folder bool) error {
	c := &d.choice
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.optional; o != nil {
		c.optional = nil
		set := d.settings()
		o.Settings = &set
		l, err := openLibrary(d, o)
		if err != nil {
			d.refuse(err)
			return nil
		}
		c.library = l
	}
	if c.library == nil || c.refused {
		return nil
	}
	err := c.library.try(path, folder)
	switch {
	case err == nil && c.compat != nil:
		d.take(c.library, Mode{Library: true, Why: "it accepts files there"})
	case err != nil && c.compat != nil:
		c.refused = true
		d.refuse(err)
	case err != nil:
		return err
	}
	return nil
}

// refuse selects compatibility mode, because of err.
func (d *Driver) refuse(err error) {
	d.take(d.choice.compat, Mode{Why: err.Error()})
	d.logUnused()
}

func (d *Driver) take(b backend, m Mode) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.back, d.mode = b, m
}

// close closes the back ends.
func (c *choice) close() error {
	var errs []error
	if c.library != nil {
		errs = append(errs, c.library.close())
	}
	if c.compat != nil {
		errs = append(errs, c.compat.close())
	}
	return errors.Join(errs...)
}

// try registers a file, or a new one in a folder, and ends the registration.
func (l *library) try(path string, folder bool) (err error) {
	var f *os.File
	if folder {
		if f, err = os.CreateTemp(path, ".cufile-"); err == nil {
			defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
		}
	} else {
		f, err = os.Open(path)
	}
	if err != nil {
		return fmt.Errorf("no file can be registered: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	file := &File{driver: l.driver, back: l, caller: f, fd: int(f.Fd())}
	if err := l.openFile(file, 0, 0); err != nil {
		if e := (*Error)(nil); errors.As(err, &e) {
			e.What = path
		}
		return err
	}
	return l.closeFile(file)
}
