// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"slices"
	"time"
)

// A videoRun is the state of the recorder.
type videoRun struct {
	video *Video
	file  *videoFile
	whole bool   // the next picture refers to none that is missing
	next  uint64 // number after the newest frame in a file
	begun bool   // there is one

	kept         []videoPicture // for triggers, beginning with one that refers to no other
	keptBytes    int64
	short        bool // it was logged that not all requested ones can be kept
	unwritten    int  // index in kept of the next picture to write
	above        bool
	open         bool // there is an event
	start, until time.Time
	first, free  int           // indices in kept of the event's first picture, and of the first one that no event before it has
	again        bool          // the event's file must end, because another one has the event from its new first picture on
	triggers     []TriggerNote // for the note of the event's next picture
}

// record records pictures until the queue is closed, and then returns nil, or until an error occurs.
func (r *videoRun) record() error {
	v := r.video
	patience, queue := max(v.config.Sync+v.config.Sync/4, lookEvery), v.queue
	idle := time.NewTimer(patience)
	defer idle.Stop()
	for {
		var err error
		select {
		case <-v.due:
			queue = v.queue
			idle.Reset(patience)
		case p, more := <-queue:
			if !more {
				return r.finish()
			}
			v.queued.Add(-int64(len(p.data)))
			if len(queue) == 0 && !v.isClosing() {
				queue = nil // until there is something to write
			}
			r.whole = p.key || r.whole && !p.gap
			switch {
			case !r.whole:
				v.missed.Add(1)
			case v.config.Window != nil:
				err = r.windowed(p)
			default:
				if err = r.write(&p, time.Now()); err != nil {
					v.missed.Add(1)
				}
			}
		case <-idle.C: // no picture comes that completes the fragment
			if queue = v.queue; len(queue) > 0 { // first these
				idle.Reset(lookEvery)
				break
			}
			if r.file != nil {
				err = v.fragment(r.file, r.file.newest.Add(lastDuration(r.file)))
			}
			idle.Reset(patience)
		}
		if err != nil {
			return errors.Join(err, r.abandon())
		}
	}
}

// finish ends the recording, with the pictures of triggers that have come since the last picture.
func (r *videoRun) finish() error {
	var err error
	if n := len(r.kept); r.video.config.Window != nil && n > 0 {
		last := &r.kept[n-1]
		if r.takeTriggers(last); r.open {
			err = r.event(last)
		}
	}
	if err == nil {
		err = r.end(time.Time{})
	}
	if err != nil {
		return errors.Join(err, r.abandon())
	}
	return nil
}

// write writes a picture. If it refers to no other, it begins a file with it if there is none or the current one has
// reached its limits.
func (r *videoRun) write(p *videoPicture, now time.Time) error {
	v := r.video
	if g := r.file; g != nil && p.key && (full(&v.config, g, p) || g.back || g.isBefore(p) || !g.fits(p) || g.gone()) {
		if err := r.end(p.at); err != nil {
			return err
		}
	}
	if r.file == nil {
		g, err := v.newFile(p, now)
		if err != nil {
			return err
		}
		r.file = g
	}
	if p.note.Lost = 0; r.begun && p.note.Frame > r.next {
		p.note.Lost = p.note.Frame - r.next
	}
	if err := v.add(r.file, p); err != nil {
		return err
	}
	r.begun, r.next = true, p.note.Frame+1
	return nil
}

// full reports whether a file has reached its limits before picture p.
func full(c *VideoConfig, g *videoFile, p *videoPicture) bool {
	return c.Duration > 0 && p.at.Sub(g.first) >= c.Duration || c.Size > 0 && g.end+g.waiting >= c.Size || g.pictures >= c.limits.pictures
}

// end ends the current file, if there is one, with the pending pictures. at is the time of the next picture, or zero if
// it is unknown: then the last picture lasts as long as the one before it.
func (r *videoRun) end(at time.Time) error {
	g := r.file
	if g == nil {
		return nil
	}
	if at.IsZero() {
		at = g.newest.Add(lastDuration(g))
	}
	if err := r.video.fragment(g, at); err != nil { // its pictures are still pending
		return err
	}
	r.file = nil
	return r.video.endFile(g)
}

// abandon closes the current file after an error. It keeps its whole fragments. The pictures that were not written are
// missing, unless they are kept for triggers: then the event's next file has them.
func (r *videoRun) abandon() error {
	g := r.file
	if r.whole = r.video.config.Window != nil; g == nil {
		return nil
	}
	if r.file = nil; len(g.pending) > 0 {
		r.next = g.begins
	}
	if r.whole {
		least := 0
		if r.open {
			least = min(r.first, r.unwritten)
		}
		r.video.missed.Add(uint64(max(len(g.pending)-r.unwritten, 0))) // those that are not kept any more
		r.unwritten = max(r.unwritten-len(g.pending), least)
		g.pending = nil
	}
	return r.video.closeFile(g)
}

// windowed records a picture of a recording with triggers.
func (r *videoRun) windowed(p videoPicture) error {
	v := r.video
	r.kept = append(r.kept, p)
	r.keptBytes += int64(len(p.data))
	r.takeTriggers(&p)
	if r.open && p.at.Before(r.start.Add(-time.Duration(slack))) { // the clock was set
		r.until = p.at.Add(-1)
	}
	v.saving.Store(r.open && !p.at.After(r.until))
	if r.open {
		if err := r.event(&p); err != nil {
			return err
		}
	}
	r.forget(p.at)
	return nil
}

// takeTriggers opens or extends the event for the triggers that have come, and if picture p meets the condition.
func (r *videoRun) takeTriggers(p *videoPicture) {
	w := r.video.config.Window
	for {
		select {
		case t := <-r.video.triggers:
			if !t.At.IsZero() {
				t.At = t.At.Add(p.shift)
			}
			if t.At.IsZero() || t.At.After(p.at.Add(time.Duration(slack))) {
				t.At = p.at
			}
			r.request(t.Cause, t.At, p)
			continue
		default:
		}
		break
	}
	if p.met && !r.above {
		r.request(w.Result.cause(), p.at, p)
	}
	if r.above = p.met; p.met {
		r.until = latest(r.until, p.at.Add(w.After))
	}
}

// request opens or extends the event for a trigger.
func (r *videoRun) request(cause string, at time.Time, p *videoPicture) {
	w := r.video.config.Window
	start, until := at.Add(-w.Before), at.Add(w.After)
	if !r.open {
		r.free, r.first, r.start, r.until = r.unwritten, len(r.kept), start, until
	}
	r.until = latest(r.until, until)
	if r.open { // so that a picture of the event has the note of the trigger
		r.until = latest(r.until, p.at)
	}
	if first := max(r.free, r.keyBefore(start)); first < r.first { // a further trigger may be late, and begin earlier
		r.again = r.file != nil
		r.first, r.unwritten = first, first
		if start.Before(r.start) {
			r.start = start
		}
	}
	if !r.open && r.first < len(r.kept) { // all of the event may be in an earlier one: it has a picture nevertheless
		r.until = latest(r.until, r.kept[r.first].at)
	}
	r.open = true
	r.video.log.Info("recording triggered", "cause", cause)
	n := w.note(cause, at.UnixNano(), p.note.Frame)
	r.triggers = append(r.triggers, n)
	r.video.reportNews(News{Trigger: &n})
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// keyBefore returns the index of the newest kept picture, not after at, that refers to no other; otherwise that of the
// first one.
func (r *videoRun) keyBefore(at time.Time) int {
	for i, p := range slices.Backward(r.kept) {
		if p.key && !p.at.After(at) {
			return i
		}
	}
	return 0
}

// event writes the kept pictures of the event that are in no file, up to picture p, and ends the event after it.
func (r *videoRun) event(p *videoPicture) error {
	if r.again {
		r.again = false
		if err := r.end(p.at); err != nil {
			return err
		}
	}
	if r.file == nil && r.unwritten < len(r.kept) { // a file begins with a picture that refers to no other
		r.unwritten = r.keyBefore(r.kept[r.unwritten].at)
	}
	for ; r.unwritten < len(r.kept); r.unwritten++ {
		x := &r.kept[r.unwritten]
		if x.at.After(r.until) {
			break
		}
		x.note.Triggers = append(x.note.Triggers, r.triggers...)
		r.triggers = nil
		if err := r.write(x, time.Now()); err != nil {
			return err
		}
	}
	if p.at.After(r.until) {
		if err := r.end(p.at); err != nil {
			return err
		}
		r.open, r.triggers = false, nil
	}
	return nil
}

// forget drops the kept pictures that no trigger can request any more: a picture stays as long as one after it, up to
// the next one that refers to no other, may be requested. If there are too many bytes of them, it drops others too.
func (r *videoRun) forget(now time.Time) {
	limit := now.Add(-r.video.config.Window.Before - time.Duration(slack))
	from := 0
	for i := 1; i < len(r.kept); i++ {
		at := r.kept[i].at
		outside, full := !at.After(limit) || at.After(now.Add(time.Duration(slack))), r.keptBytes > r.video.config.limits.kept
		if r.kept[i].key && (outside || full) && (!r.open || i <= r.unwritten) {
			if !outside && !r.short {
				r.short = true
				r.video.log.Warn("not all pictures before a trigger can be kept: shorten before, or lower the bit rate",
					"bytes", r.keptBytes, "most", r.video.config.limits.kept, "keeps", now.Sub(at), "before", r.video.config.Window.Before)
			}
			for _, x := range r.kept[from:i] {
				r.keptBytes -= int64(len(x.data))
			}
			from = i
		}
	}
	if from > 0 {
		r.kept = slices.Delete(r.kept, 0, from)
		r.unwritten, r.first, r.free = max(r.unwritten-from, 0), max(r.first-from, 0), max(r.free-from, 0)
	}
}
