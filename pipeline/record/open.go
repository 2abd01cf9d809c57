// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrNoFile means that there is no recording with the name of a file.
var ErrNoFile = errors.New("there is no recording of that name")

// Open opens the file of a recording. name is a file's name without its folder. The caller must close it. The error
// wraps ErrNoFile or ErrHangs, or is the file's.
func (r *Recordings) Open(name string) (*File, error) {
	c, err := r.catalogOf(name)
	if err != nil {
		return nil, err
	}
	return c.open(name)
}

func (c *catalog) open(name string) (*File, error) {
	return ask(c, func(d *folder) (*File, error) {
		f, err := d.find(name)
		if err != nil {
			return nil, err
		}
		return c.opened.open(f)
	})
}

// Delete deletes the file of a recording. The error wraps ErrNoFile, ErrWritten or ErrHangs, or is the file's. why is
// for the log.
func (r *Recordings) Delete(name, why string) error {
	c, err := r.catalogOf(name)
	if err != nil {
		return err
	}
	_, err = ask(c, func(d *folder) (struct{}, error) { return struct{}{}, d.deleteNamed(name, why) })
	return err
}

// catalogOf returns the catalog of the output whose recording gives a name.
func (r *Recordings) catalogOf(name string) (*catalog, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for output, c := range r.catalogs {
		if isRecordingOf(name, output) {
			return c, nil
		}
	}
	return nil, ErrNoFile
}

func (d *folder) deleteNamed(name, why string) error {
	f, err := d.find(name)
	if err != nil {
		return err
	}
	file, err := openOwn(f)
	if err != nil {
		return err
	}
	written := d.writing.has(f.path) || locked(file)
	if err := file.Close(); err != nil {
		return err
	}
	if written {
		return fmt.Errorf("%s: %w: stop its output first", filepath.Base(f.path), ErrWritten)
	}
	return d.delete(f, why)
}

// openOwn opens a file, but not through a link that has taken its place meanwhile.
func openOwn(f ownFile) (*os.File, error) {
	file, err := os.OpenFile(f.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ELOOP):
		return nil, ErrNoFile
	case err != nil:
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNoFile
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
