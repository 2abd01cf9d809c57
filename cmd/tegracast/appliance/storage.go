// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline/record"
)

// storage holds the cuFile drivers of recordings that are written or played, and knows which disks hang.
type storage struct {
	log     *slog.Logger
	disks   record.Disks
	drivers map[string]*cufile.Driver // by folder
}

// openDriver returns the driver for the files of a folder, and opens it on first use. Each folder has its own, so that
// a disk that hangs does not block another one.
func (s *storage) openDriver(folder string) (*cufile.Driver, error) {
	if d := s.drivers[folder]; d != nil {
		return d, nil
	}
	d, err := cufile.Open(cufile.Config{Logger: s.log})
	if err != nil {
		return nil, err
	}
	s.drivers[folder] = d
	return d, nil
}

// close closes the drivers, which must no longer be in use. While a disk hangs it leaves them to the end of the
// process, because closing would wait for transfers in progress.
func (s *storage) close() error {
	if s.disks.Hanging() {
		return nil
	}
	var errs []error
	for _, d := range s.drivers {
		errs = append(errs, d.Close())
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
