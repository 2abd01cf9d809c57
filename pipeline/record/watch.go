// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

const (
	diskPatience  = 10 * time.Second        // maximum wait for a system call while frames come
	closePatience = 2500 * time.Millisecond // maximum wait for all system calls after the context has ended
	statPatience  = time.Second             // maximum wait for the check of the folder
	lookEvery     = 50 * time.Millisecond
)

// call is a kind of operation for which a recording waits for the disk. At most one of each kind is in progress at a
// time.
type call uint8

const (
	laying call = iota // files are begun, and space is reserved
	writing
	syncing
	ending
	forgetting
	mending
	calls
)

func (c call) String() string {
	return [...]string{
		"taking the place of a frame", "writing a frame", "having frames on the disk", "the end of a file", "giving back frames",
		"the index of an earlier file",
	}[c]
}

// waits contains the start times of waiting calls in ns; 0 means that the call is not waiting.
type waits [calls]atomic.Int64

func (w *waits) begin(c call) { w[c].Store(time.Now().UnixNano()) }

// end returns how long the call has waited.
func (w *waits) end(c call) time.Duration { return time.Duration(time.Now().UnixNano() - w[c].Swap(0)) }

// longest returns the call that has been waiting longest, and since when; since is zero if none is waiting.
func (w *waits) longest() (what call, since time.Time) {
	for c := range calls {
		if at := w[c].Load(); at != 0 && (since.IsZero() || at < since.UnixNano()) {
			what, since = c, time.Unix(0, at)
		}
	}
	return what, since
}

// Run implements pipeline.Sink. An error ends the recording; the current file then ends with its last complete frame.
// An error that wraps ErrHangs means that the disk does not answer. If the recording has begun, it then keeps its
// files, its memory and the frames that it holds until the disk answers or the process ends, and Close does not release
// them.
func (s *Sink) Run(ctx context.Context, q *pipeline.Queue) error {
	if err := cmp.Or(s.hangs, s.config.Disks.Hang(s.config.Directory)); err != nil {
		return errors.Join(err, s.Close())
	}
	h, ended := &hands{queue: q}, make(chan error, 1)
	ctx2, stop := context.WithCancel(ctx)
	defer stop()
	s.busy.Store(true)
	go func() {
		err := s.recordFrames(ctx2, h)
		s.busy.Store(false)
		ended <- errors.Join(err, s.Close())
	}()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var over time.Time // when the context has ended
	for {
		select {
		case err := <-ended:
			return err
		case now := <-tick.C:
			if over.IsZero() && ctx.Err() != nil {
				over = now
			}
			what, since := s.waits.longest()
			if !since.IsZero() && now.Sub(since) > s.patience || !over.IsZero() && now.Sub(over) > closePatience {
				stop()
				return s.leave(h, what, since, ended)
			}
		}
	}
}

// leave gives up waiting for the disk: it detaches from the queue, records that the disk hangs, and returns an error
// that wraps ErrHangs.
func (s *Sink) leave(h *hands, what call, since time.Time, ended <-chan error) error {
	h.leave()
	files := strings.Join(s.writing.open(), ", ")
	s.log.Error("the disk hangs: a recording is not closed", "file", files, "waits for", what.String(), "since", since,
		"remedy", "check the disk; tegracast record verify FILE tells which frames can be read, tegracast record repair FILE gives it its end")
	answered := s.config.Disks.add(s.config.Directory, "the recording "+files, since)
	go func() {
		err := <-ended // ends: when the disk answers, or with the process
		answered()
		s.log.Info("the disk answers again: a recording is closed", "file", files, "error", err)
	}()
	return fmt.Errorf("%w: %s has waited for %v: %s is not closed: check the disk", ErrHangs, what, time.Since(since).Round(100*time.Millisecond), files)
}
