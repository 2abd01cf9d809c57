// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// receive handles a message from the sender.
func (a *attempt) receive(m incoming, now time.Time) {
	if err := a.handleMessage(m, now); err != nil {
		a.fail(err)
	}
}

func (a *attempt) handleMessage(m incoming, now time.Time) error {
	r := a.receiver
	r.mu.Lock()
	a.heard = now
	state := a.state
	r.mu.Unlock()
	if m.id != idFrame && (m.fetch != nil || len(m.data) > maxControl && m.id != idResults) {
		return fmt.Errorf("%w: message %d of %d bytes", errWire, m.id, max(m.length, len(m.data)))
	}
	switch {
	case m.id == idWelcome && state == calling && len(a.welcomed) == 0:
		w, err := parseWelcome(m.data)
		if err == nil {
			a.welcomed <- w
		}
		return err
	case m.id == idBye:
		y, err := parseBye(m.data)
		if err == nil {
			err = &ByeError{y.code, y.reason}
		}
		return err
	case m.id == idAccept && state == asking:
		return a.accepted(m.data, now)
	case m.id == idFrame && state == getting:
		return a.frame(m, now)
	case m.id == idResults && state == getting:
		return a.found(m)
	case m.id == idState && state == getting:
		k, err := parseBooks(m.data)
		if err == nil {
			r.mu.Lock()
			a.books = k
			r.mu.Unlock()
		}
		return err
	}
	return fmt.Errorf("%w: message %d at the wrong time", errWire, m.id)
}

// accepted handles the sender's accept: frames may arrive from now on, and the sender gets credits.
func (a *attempt) accepted(data []byte, now time.Time) error {
	f, err := parseAccept(data)
	if err != nil {
		return err
	}
	if f != a.format {
		return fmt.Errorf("%w: accept of %s instead of %s", errWire, f, a.format)
	}
	r := a.receiver
	r.mu.Lock()
	a.state, a.begun = getting, true
	r.tally.stats.Ended = false
	r.tally.stats.Connections++
	r.trouble = nil
	r.mu.Unlock()
	a.grant(now)
	return nil
}

// found keeps the results of a frame, which arrive before it. Only the latest ones are kept.
func (a *attempt) found(m incoming) error {
	rd := reader{rest: m.header}
	sequence := rd.word64()
	if err := rd.checkEnd("results"); err != nil || len(m.data) > maxResults {
		return errors.Join(err, fmt.Errorf("%w: results of %d bytes", errWire, len(m.data)))
	}
	text := slices.Clone(m.data)
	r := a.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	a.results[a.turn] = found{sequence, text}
	a.turn = (a.turn + 1) % len(a.results)
	return nil
}

// frame fetches the pixels of a frame into a buffer.
func (a *attempt) frame(m incoming, now time.Time) error {
	r := a.receiver
	r.mu.Lock()
	version := a.version
	r.mu.Unlock()
	h, err := parseFrameHeader(m.header, version)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if m.fetch == nil || h.size != uint64(a.format.Size()) || uint64(m.length) != h.size || a.granted == 0 {
		r.mu.Unlock()
		return fmt.Errorf("%w: frame %d of %d bytes with %d, instead of %d by rendezvous; it had %d credits",
			errWire, h.sequence, h.size, m.length, a.format.Size(), a.granted)
	}
	a.granted--
	r.free--
	f := r.pool.Get()
	r.count(a, h)
	r.mu.Unlock()
	err = m.fetch(f.Slot(), func(n int, err error) { a.fetched(f, h, n, err) })
	if err != nil {
		f.Release()
	}
	return err
}

// count updates the counters for a frame. The lock must be held.
func (r *Receiver) count(a *attempt, h frameHeader) {
	if a.came > 0 && h.sequence > a.last.sequence {
		numbers, offered := h.sequence-a.last.sequence, h.books.offered-a.last.books.offered
		r.tally.stats.Missing += numbers - min(numbers, offered)
	}
	a.came++
	a.last, a.books = h, h.books
}

// fetched passes on a frame that has been fetched, with its results. If fetching failed, it ends the connection.
func (a *attempt) fetched(f *pipeline.Frame, h frameHeader, n int, err error) {
	if err == nil && uint64(n) != h.size {
		err = fmt.Errorf("%w: frame %d came with %d bytes of %d", errWire, h.sequence, n, h.size)
	}
	r := a.receiver
	if err != nil {
		r.mu.Lock()
		r.tally.stats.Broken++
		r.mu.Unlock()
		f.Release()
		a.fail(err)
		return
	}
	f.Sequence, f.Group, f.Times, f.Flags = h.sequence, h.group, h.times, h.flags
	r.mu.Lock()
	var text []byte
	if i := slices.IndexFunc(a.results[:], func(x found) bool { return x.text != nil && x.sequence == h.sequence }); i >= 0 {
		text, a.results[i].text = a.results[i].text, nil
	}
	r.mu.Unlock()
	r.arrived <- arrival{f, h, time.Now(), text} // has room for all buffers
}

// finish verifies a frame and attaches its results. It reports whether the frame is undamaged or was not verified; a
// damaged frame is released.
func (r *Receiver) finish(x arrival) bool {
	f, h := x.frame, x.header
	checked := h.by != crcNone && !r.config.Unverified && f.Bytes != nil
	right := !checked || checksum([][]byte{f.Bytes}) == h.crc
	if h.by != crcNone {
		f.CRC = h.crc
	}
	wrong := error(nil)
	if x.results != nil {
		wrong = json.Unmarshal(x.results, &f.Results)
	}
	r.mu.Lock()
	t := &r.tally.stats
	switch {
	case !right:
		t.Mismatched++
	case !checked:
		t.Unverified++
	case h.by == crcFPGA:
		t.Traced++
		t.Matched++
	default:
		t.Matched++
	}
	if right {
		t.Frames++
		t.Bytes += h.size
		r.tally.last = x.at
	}
	if x.results != nil && wrong == nil {
		t.Results++
	}
	r.mu.Unlock()
	r.tally.transfer.Observe(x.at.Sub(h.sent))
	if !f.Times.Shown().IsZero() {
		r.tally.latency.Observe(x.at.Sub(f.Times.Shown()))
	}
	if !right {
		r.log.Error("ucx: a frame is damaged", "frame", h.sequence, "sender", r.config.Address)
		f.Release()
	}
	if wrong != nil {
		r.log.Error("ucx: results cannot be read", "frame", h.sequence, "error", wrong)
	}
	return right
}
