// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline/record"
)

// Values of the key storage other than auto.
const (
	storageCompatibility = "compatibility"
	storageLibrary       = "library"
)

// storage holds the cuFile drivers of recordings that are written or played, and knows which disks hang.
type storage struct {
	memory  *memory
	log     *slog.Logger
	disks   record.Disks
	drivers map[place]*cufile.Driver
}

// A place is a folder with a value of the key storage.
type place struct{ folder, storage string }

// openDriver returns the driver for the files of a folder, and opens it on first use. Each place has its own, so that a
// disk that hangs does not block another one. The driver of auto uses libcufile only for paths that it was prepared for.
func (s *storage) openDriver(p place) (*cufile.Driver, error) {
	if d := s.drivers[p]; d != nil {
		return d, nil
	}
	c := cufile.Config{Library: cufile.LibraryName, Optional: p.storage != storageLibrary, Logger: s.log}
	if p.storage == storageCompatibility {
		c.Library = ""
	}
	if gpu, is := s.memory.allocator.(*cudahost.CUDA); is {
		c.Device = gpu.Device
	} else if p.storage == storageLibrary {
		return nil, errors.New("storage: library needs frames in CUDA memory: see tegracast doctor, or leave storage out")
	}
	d, err := cufile.Open(c)
	if err != nil {
		return nil, p.explain(err)
	}
	s.drivers[p] = d
	return d, nil
}

// explain adds to an error of libcufile what to do.
func (p place) explain(err error) error {
	if e := (*cufile.Error)(nil); p.storage == storageLibrary && (errors.As(err, &e) || errors.Is(err, cufile.ErrNoLibrary)) {
		return fmt.Errorf("storage: library: %w: correct that, or leave storage out", err)
	}
	return err
}

// modeName returns the value of the key storage that selects a mode.
func modeName(m cufile.Mode) string {
	if m.Library {
		return storageLibrary
	}
	return storageCompatibility
}

// close closes the drivers, which must no longer be in use. While a disk hangs it leaves them to the end of the
// process, because closing would wait for transfers in progress.
func (s *storage) close() error {
	var errs []error
	for _, d := range s.drivers {
		if !s.disks.Hanging() {
			errs = append(errs, d.Close())
		}
	}
	clear(s.drivers)
	return errors.Join(errs...)
}

// logHeld returns err unless a recording waits for its disk, which keeps frames in use. Then it logs err and returns
// nil, since what could not be closed ends with the process.
func (s *storage) logHeld(what string, err error) error {
	if err != nil && s.disks.Hanging() {
		text, _, _ := strings.Cut(err.Error(), "\n")
		s.log.Warn("closed with errors, since a recording whose disk hangs holds frames: what is left is free with the process",
			"what", what, "error", text)
		return nil
	}
	return err
}
