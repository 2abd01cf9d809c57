// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrHangs means that a disk does not answer in time, or that an earlier operation still waits for it.
var ErrHangs = errors.New("the disk hangs")

// Disks records which operations wait for the disks of which folders, so that no further one has to wait there. The
// zero value is ready for use; a nil *Disks records nothing.
type Disks struct {
	mu   sync.Mutex
	list []*hanging
}

// hanging is an operation that waits for the disk of a folder.
type hanging struct {
	folder, what string
	since        time.Time
}

// Hang returns an error that wraps ErrHangs if an operation waits for the disk of the given folder, otherwise nil.
func (d *Disks) Hang(folder string) error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.list, func(h *hanging) bool { return h.folder == folder })
	if i < 0 {
		return nil
	}
	h := d.list[i]
	return fmt.Errorf("%w: %s waits for %s since %s: check the disk; if it does not come back, unmount or detach it, and end the program",
		ErrHangs, h.what, folder, h.since.Format(time.TimeOnly))
}

// Hanging reports whether any operation waits for a disk. A waiting recording holds frames, files and memory. d must
// not be nil.
func (d *Disks) Hanging() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.list) > 0
}

// add records that an operation has been waiting for a folder's disk since the given time. The returned function must
// be called when the wait is over.
func (d *Disks) add(folder, what string, since time.Time) (answered func()) {
	if d == nil {
		return func() {}
	}
	h := &hanging{folder, what, since}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, h)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.list = slices.DeleteFunc(d.list, func(x *hanging) bool { return x == h })
	}
}

// try calls do, which accesses a folder's disk, and returns its error. It returns an error that wraps ErrHangs instead
// if do takes longer than patience, in which case do continues, or if an operation already waits for the disk, in which
// case do is not called.
func (d *Disks) try(folder string, patience time.Duration, do func() error) error {
	if err := d.Hang(folder); err != nil {
		return err
	}
	began, done := time.Now(), make(chan error, 1)
	answered := d.add(folder, "a look at the folder", began)
	go func() {
		err := do()
		answered()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return fmt.Errorf("%w: %s has not answered for %v: check the disk", ErrHangs, folder, patience)
	}
}
