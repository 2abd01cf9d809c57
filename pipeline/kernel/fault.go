// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// ErrHung means that a kernel did not end in time. A running kernel cannot be cancelled.
var ErrHung = errors.New("the kernel hangs")

// ErrStuck means that the GPU did not start to work on a frame, or did not finish its copies, for longer than any
// kernel may take. That is not the fault of the frame's kernel.
var ErrStuck = errors.New("the GPU makes no progress")

// A FaultError reports that a kernel has cost the process its GPU or, with ErrStuck, that a kernel was waiting when the
// GPU was lost.
type FaultError struct {
	Kernel, File, Entry string
	Frame               uint64
	Err                 error
}

var _ pipeline.DeviceError = (*FaultError)(nil)

func (e *FaultError) Error() string {
	return fmt.Sprintf("kernel %s (%s, entry %s): frame %d: %v", e.Kernel, e.File, e.Entry, e.Frame, e.Err)
}

func (e *FaultError) Unwrap() error { return e.Err }

// Sticky implements pipeline.DeviceError: the process cannot use the GPU any more.
func (e *FaultError) Sticky() bool { return true }

// failed returns the error of a frame. If err means that the process has lost its GPU, the returned error is the fault
// of the kernel that was running, if that is known.
func (s *Stage) failed(p *loaded, number int, frame uint64, err error) error {
	if pipeline.DeviceLost(err) {
		if f := s.order.Fault(); f != nil {
			return f
		}
		if p.working(number) {
			return s.lose(p.key, frame, err)
		}
	}
	return fmt.Errorf("kernel %s: frame %d: %w", s.config.Name, frame, err)
}

// lose handles the loss of the GPU by this kernel: it puts the kernel into quarantine, and no further work is done on
// the device. It returns the fault by which the GPU was lost.
func (s *Stage) lose(key string, frame uint64, err error) error {
	c := &s.config
	e := Entry{Kernel: c.Name, File: c.File, Entry: c.Entry, Key: key, Frame: frame, What: err.Error(), When: time.Now().UTC()}
	if err := s.quarantine.Put(e); err != nil {
		s.log.Error("kernel broke the GPU and cannot be put into quarantine: the next start will run it again", "kernel", c.Name, "error", err)
	} else {
		s.log.Error("kernel broke the GPU: it is in quarantine until its file changes or the entry is removed",
			"kernel", c.Name, "file", c.File, "frame", frame, "what", e.What, "entry", s.quarantine.Path(key))
	}
	return s.order.lose(s.faultError(frame, err))
}

func (s *Stage) faultError(frame uint64, err error) *FaultError {
	return &FaultError{Kernel: s.config.Name, File: s.config.File, Entry: s.config.Entry, Frame: frame, Err: err}
}
