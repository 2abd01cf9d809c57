// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// A ring writes all frames, and frees those that no trigger can request any more. Its methods are called by the
// recording's goroutine. An event consists of the frames requested by one trigger, or by several whose windows overlap,
// and becomes one or more files.
type ring struct {
	run           *run
	before, after int64 // ns
	entries       []entry
	last          int64  // time of the newest frame, in ns since 1970
	newest        uint64 // number of the newest frame
	begun         bool   // there has been a frame

	next      *Trigger // trigger that waits for the frame of its time
	triggered uint32
	above     bool // the previous frame met the condition

	shift        time.Duration // of the frames' times from this machine's
	open         bool          // there is an event, which a further trigger may extend
	start, until int64         // start and end (inclusive) of the event, in ns since 1970

	previous *past
	trimming sync.WaitGroup
}

// entry is the position of a frame, or of a trigger or the camera's settings, in the file.
type entry struct {
	at    int64 // ns since 1970
	begin int64
	note  *mcap.Part // the message; nil for a frame
}

// past is the previous file of a ring. Its last frames belong to the ring as long as a trigger can request them.
type past struct {
	segment *segment
	event
	by  int64 // offset of its last frames in the ring's file, minus that in this file
	end int64 // end of these frames in the ring's file
}

// An event is the range of bytes of its frames in the file. late contains those of its small messages that are after
// that range.
type event struct {
	from, to int64
	late     []mcap.Part
}

// slack is the maximum lateness of a trigger, in ns of the frames' time. Frames are kept this much longer before they
// are forgotten.
const slack = int64(time.Second)

// longest is the size in bytes of a ring's file, including its gap, above which a new one is begun unless an event is
// open: file systems limit the size.
const longest = 1 << 40

func newRing(r *run, w *Window) *ring {
	return &ring{run: r, before: int64(w.Before), after: int64(w.After)}
}

// frame processes the triggers and the condition before frame f is written, and prepares the file for it.
func (r *ring) frame(f *pipeline.Frame, at int64) (err error) {
	if r.run.segment == nil {
		if r.run.segment, err = r.run.sink.newRing(0); err != nil {
			return err
		}
	}
	r.shift = f.Times.Shift()
	if err := r.triggers(false); err != nil {
		return err
	}
	if err := r.result(f, at); err != nil {
		return err
	}
	c := &r.run.sink.config
	switch {
	case r.open && (at > r.until+r.before+slack || at < r.start-slack): // no trigger can extend the event, or the clock was set
		return r.split()
	case r.open && at <= r.until && r.full(c, at):
		return r.nextFile()
	case !r.open && r.previous == nil && int64(r.run.segment.writer.Offset) > r.run.sink.longest:
		return r.split()
	}
	return nil
}

// full reports whether a file with the given duration in ns and size in bytes has reached its limit.
func (c *Config) full(duration, size int64) bool {
	return c.Duration > 0 && duration >= int64(c.Duration) || c.Size > 0 && size >= c.Size
}

// full reports whether the event must continue in a new file before a frame of time at is written: because its file
// would exceed its limit, or was deleted by someone else. A file without entries is never full.
func (r *ring) full(c *Config, at int64) bool {
	if len(r.entries) == 0 || r.run.segment.gone.Load() {
		return len(r.entries) > 0
	}
	return c.full(at-r.entries[0].at, int64(r.run.segment.writer.Offset)-r.entries[0].begin)
}

// wrote records that frame n of time at is written from byte begin on.
func (r *ring) wrote(n uint64, at, begin int64) {
	r.entries = append(r.entries, entry{at: at, begin: begin})
	r.last, r.newest, r.begun = at, n, true
	r.run.sink.saving.Store(r.open && at <= r.until)
	if !r.open {
		r.expire()
	}
}

// expire forgets old frames, at least a second of them at a time.
func (r *ring) expire() {
	n := slices.IndexFunc(r.entries, func(e entry) bool { return max(r.last-e.at, e.at-r.last) <= r.before+slack })
	if n <= 0 || max(r.entries[n].at-r.entries[0].at, r.entries[0].at-r.entries[n].at) < int64(time.Second) {
		return
	}
	from, to, g := r.entries[0].begin, r.entries[n].begin, r.run.segment
	r.entries = slices.Delete(r.entries, 0, n)
	g.writer.Keep(uint64(to), math.MaxUint64)
	if r.previous != nil && to >= r.previous.end {
		r.leave(false)
	}
	r.trimming.Wait() // the frames forgotten a second ago
	r.trimming.Go(func() {
		r.run.sink.waits.begin(forgetting)
		defer r.run.sink.waits.end(forgetting)
		if err := g.forget(from, to); err != nil {
			r.run.fail(fmt.Errorf("recording %s: %w", g.path(), err))
		}
	})
}

// triggers processes the waiting triggers. A trigger that is ahead of the frames keeps waiting, unless end is true.
func (r *ring) triggers(end bool) error {
	for r.begun {
		if r.next == nil {
			select {
			case t := <-r.run.sink.triggers:
				r.next = &t
			default:
				return nil
			}
		}
		at := r.last
		if !r.next.At.IsZero() {
			at = r.next.At.Add(r.shift).UnixNano()
		}
		if at > r.last && !end {
			return nil
		}
		t := *r.next
		r.next = nil
		if err := r.trigger(t, at); err != nil {
			return err
		}
	}
	return nil
}

// result triggers if the frame meets the condition. If the previous frame met it too, and the windows overlap, result
// extends the open event instead.
func (r *ring) result(f *pipeline.Frame, at int64) (err error) {
	c := r.run.sink.config.Window.Result
	if c == nil {
		return nil
	}
	met := c.met(f)
	switch {
	case met && r.above && r.open && at-r.before <= r.until:
		r.until = max(r.until, at+r.after)
	case met:
		err = r.trigger(Trigger{Cause: c.cause()}, at)
	}
	r.above = met
	return err
}

// trigger processes a trigger of time at: it extends the open event, or begins a new one.
func (r *ring) trigger(t Trigger, at int64) error {
	start, until := at-r.before, at+r.after
	if r.open && start > r.until {
		if err := r.split(); err != nil {
			return err
		}
	}
	if r.open {
		r.start, r.until = min(r.start, start), max(r.until, until)
		return r.note(t, at)
	}
	r.open, r.start, r.until = true, start, until
	g, s := r.run.segment, r.run.sink
	if err := s.prune(time.Now()); err != nil {
		return err
	}
	begins, old, size := at, g.path(), g.head
	if i := r.first(); i < len(r.entries) {
		begins = r.entries[i].at
		size += int64(g.writer.Offset) - r.entries[i].begin
	}
	path, err := s.names(time.Unix(0, begins), func(path string) error {
		err := os.Link(old, path)
		if err == nil {
			g.name.Store(&path)
		}
		return err
	})
	if err != nil {
		return err
	}
	g.size.Store(size)
	g.idle.Store(false)
	s.files.Add(1)
	s.log.Info("recording triggered", "file", path, "cause", t.Cause)
	if r.previous != nil {
		r.leave(true)
	}
	r.run.told = nil // what was written before may not be part of the event
	return errors.Join(os.Remove(old), r.note(t, at), r.run.settings(at, time.Now()))
}

// first returns the index of the event's first entry, or the number of entries if there is none.
func (r *ring) first() int {
	if i := slices.IndexFunc(r.entries, func(e entry) bool { return e.at >= r.start }); i >= 0 {
		return i
	}
	return len(r.entries)
}

// window returns the event's position in the file, and the index of the first entry behind it.
func (r *ring) window() (e event, behind int) {
	for behind = len(r.entries); behind > 0 && (r.entries[behind-1].note != nil || r.entries[behind-1].at > r.until); behind-- {
	}
	for ; behind < len(r.entries) && r.entries[behind].note != nil; behind++ {
	}
	e.to = int64(r.run.segment.writer.Offset)
	if behind < len(r.entries) {
		e.to = r.entries[behind].begin
	}
	e.from = e.to
	if i := r.first(); i < behind {
		e.from = r.entries[i].begin
	}
	for _, x := range r.entries[behind:] {
		if x.note != nil && x.at <= r.until {
			e.late = append(e.late, *x.note)
		}
	}
	return e, behind
}

// split ends the event, if one is open, and continues in a new file. What follows the event stays where it is until a
// trigger requests it.
func (r *ring) split() error {
	old, p, behind := r.run.segment, &past{}, 0
	if r.open {
		p.event, behind = r.window()
	} else if len(r.entries) > 0 { // nothing was requested
		p.to = r.entries[0].begin
	}
	p.segment = old
	next, err := r.run.sink.newRing(int64(old.writer.Offset) - p.to)
	if err != nil {
		return err
	}
	p.end = int64(next.writer.Offset)
	p.by = p.end - int64(old.writer.Offset)
	next.writer.Adopt(old.writer, uint64(p.to), p.by)
	r.entries = slices.Clone(r.entries[behind:])
	for i := range r.entries {
		r.entries[i].begin += p.by
	}
	r.run.segment, r.previous, r.open = next, p, false
	if len(r.entries) == 0 {
		r.leave(false)
	}
	return nil
}

// leave completes the previous file (r.previous) in the background. If take is true, the frames of that file that the
// ring still needs are first copied to the current one.
func (r *ring) leave(take bool) {
	p, g, run := r.previous, r.run.segment, r.run
	r.previous = nil
	needed := p.end
	if take && len(r.entries) > 0 {
		needed = min(needed, r.entries[0].begin)
	}
	r.trimming.Wait()
	run.sink.ending.Wait()
	run.sink.ending.Go(func() {
		run.sink.waits.begin(ending)
		defer run.sink.waits.end(ending)
		p.segment.pending.Wait()
		err := run.failure()
		if err == nil && needed < p.end {
			err = g.fill(p.segment, needed-p.by, needed, p.end-needed)
		}
		if err != nil {
			run.fail(err)
		}
		if err := r.close(p.segment, p.event, err); err != nil {
			run.fail(fmt.Errorf("recording %s: %w", p.segment.path(), err))
		}
	})
}

// close completes the file of an event. It only closes a file that is not needed, and truncates and closes one that
// could not be written completely.
func (r *ring) close(g *segment, e event, failed error) error {
	switch {
	case g.idle.Load(): // the name is now that of its successor
		return g.close()
	case failed != nil:
		return g.cut()
	}
	err := g.keep(e)
	if err == nil {
		r.run.sink.reportNews(News{File: g.path()})
	}
	return err
}

// nextFile continues the event in a new file, because this one has reached its limit.
func (r *ring) nextFile() error {
	e, _ := r.window()
	next, err := r.run.sink.newSegment(time.Now())
	if err != nil {
		return err
	}
	r.previous = &past{segment: r.run.segment, event: e}
	r.run.segment, r.entries = next, nil
	r.leave(false)
	return r.run.sink.prune(time.Now())
}

// endEvent ends the current event with the frames there are, or deletes the file if there is no event.
func (r *ring) endEvent() error {
	if r.run.segment == nil {
		return r.run.failure()
	}
	err := r.run.failure()
	if err == nil {
		err = r.triggers(true)
	}
	if r.previous != nil {
		r.leave(false)
	}
	g := r.run.segment
	e, _ := r.window()
	r.run.segment = nil
	g.pending.Wait()
	r.trimming.Wait()
	r.run.sink.ending.Wait()
	err = errors.Join(err, r.run.failure())
	if g.idle.Load() {
		return errors.Join(err, g.remove())
	}
	return errors.Join(err, r.close(g, e, err))
}
