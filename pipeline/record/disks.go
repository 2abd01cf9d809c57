// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrHangs is that of a disk that does not answer: a call of the kernel has not returned for long.
var ErrHangs = errors.New("the disk hangs")

// Disks know which folders are on disks that hang, so that no further call waits there. Its zero value is ready for use; a nil one knows
// nothing.
type Disks struct {
	mu   sync.Mutex
	list []*hanging
}

// hanging is what waits for a disk.
type hanging struct {
	folder, what string
	since        time.Time
}

// Hang is why there can be no recordings in a folder for the moment; nil: they can be tried.
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

// Hanging reports whether something waits for a disk that hangs: it has frames, files and memory.
func (d *Disks) Hanging() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.list) > 0
}

// add notes that something has waited for a folder's disk since a time. The result is called when it waits no more.
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

// try calls do, which asks a folder's disk. An error wraps ErrHangs when that takes longer than patience, or when something waits there
// already; then do may go on.
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
