// SPDX-License-Identifier: Apache-2.0

package model

import "context"

// A streamSource is the card side of a C2H stream channel. Its methods are called with Device.mu held. The bytes
// returned by next are lent and must not change until taken is called.
type streamSource interface {
	// next returns up to n bytes that can be sent now, and whether they end a packet: no bytes and false if there are
	// none, no bytes and true for an empty packet. The bytes are valid after load.
	next(n int) (p []byte, eop bool)
	// load is called, without Device.mu, before the bytes are read.
	load()
	// taken is called when the first n of the bytes that next returned have been sent. It ends the loan.
	taken(n int)
	// detach is called when the channel's Run bit has fallen.
	detach()
	// reset discards everything, even during a loan, which taken(0) then ends.
	reset()
}

// A streamSink is the card side of an H2C stream channel. Its methods are called with Device.mu held, and push with at
// most as many bytes as room has returned.
type streamSink interface {
	room() int
	push(p []byte, eop bool)
	detach()
	reset()
}

// receive moves the next piece of the stream into the descriptor's memory. It returns false if the source has no bytes.
func (e *engine) receive(ctx context.Context, c *descriptor) bool {
	w, d := &e.work, e.d
	d.mu.Lock()
	if e.stale() {
		d.mu.Unlock()
		return true
	}
	p, eop := e.source.next(c.length - w.filled)
	if n := e.piece(len(p)); n < len(p) {
		p, eop = p[:n], false
	}
	writeBack := e.control&bitNoWriteBack == 0
	var late armed
	if eop && writeBack {
		late, _ = e.fire(F6, "write-back late", "write-back stale first", "write-back before the data")
	}
	d.mu.Unlock()
	if len(p) == 0 && !eop && c.length > 0 {
		return false
	}
	e.source.load()
	if late.on && late.variant(3) == writeBackEarly {
		e.streamBack(c.src, w.filled+len(p), eop, late)
		if !e.pause(ctx, late.between(1, 4)) {
			e.took(0)
			return true
		}
	}
	if len(p) > 0 {
		_ = d.cfg.Bus.Write(e.address(c.dst+uint64(w.filled)), p) // posted
	}
	if !e.took(len(p)) {
		return true
	}
	if w.filled < c.length && !eop {
		return true
	}
	if writeBack {
		e.streamBack(c.src, w.filled, eop, late)
	}
	e.complete(c)
	return true
}

// took accounts for n bytes that were sent. It returns false if the device was reset in the meantime.
func (e *engine) took(n int) bool {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	if e.stale() {
		e.source.taken(0)
		return false
	}
	e.source.taken(n)
	e.perf.count(n)
	e.work.filled += n
	e.work.moved += n
	return true
}

// send moves the next piece of the descriptor's memory into the stream. It returns false if the sink has no room.
func (e *engine) send(c *descriptor) bool {
	w, d := &e.work, e.d
	if w.scratch == nil {
		w.scratch = make([]byte, fifoBytes)
	}
	n := e.piece(min(len(w.scratch), c.length-w.filled))
	if e.sink != nil {
		d.mu.Lock()
		n = min(n, e.sink.room())
		d.mu.Unlock()
	}
	if n == 0 && c.length > 0 {
		return false
	}
	if n > 0 && d.cfg.Bus.Read(e.address(c.src+uint64(w.filled)), w.scratch[:n]) != nil {
		if e.stop(hostUnsupported<<shiftReadError, false) {
			return true
		}
		clear(w.scratch[:n])
	}
	d.mu.Lock()
	if e.stale() {
		d.mu.Unlock()
		return true
	}
	w.filled += n
	w.moved += n
	end := w.filled == c.length
	e.perf.count(n)
	if e.sink != nil {
		e.sink.push(w.scratch[:n], end && c.control&descEOP != 0)
	}
	d.mu.Unlock()
	if end {
		e.complete(c)
	}
	return true
}

// fifoBytes is the capacity of a stream between its H2C and its C2H channel in bytes.
const fifoBytes = 64 << 10

// fifo connects an H2C stream channel to a C2H one.
type fifo struct {
	reader, writer *engine // writer is nil if nothing feeds the FIFO
	buf            [fifoBytes]byte
	rd, wr         uint64   // total bytes read and written
	ends           []uint64 // values of wr at the ends of the packets that have not been read completely
	lent           bool     // bytes are lent to the reader
	discard        bool     // discard everything when the loan ends
}

func (f *fifo) room() int {
	if f.discard {
		return 0
	}
	return fifoBytes - int(f.wr-f.rd)
}

func (f *fifo) push(p []byte, eop bool) {
	k := copy(f.buf[f.wr%fifoBytes:], p)
	copy(f.buf[:], p[k:])
	f.wr += uint64(len(p))
	if last := len(f.ends) - 1; eop && f.wr > f.rd && (last < 0 || f.ends[last] < f.wr) {
		f.ends = append(f.ends, f.wr)
	}
	f.reader.kick()
}

// load implements streamSource.
func (*fifo) load() {}

func (f *fifo) next(n int) (p []byte, eop bool) {
	at := f.rd % fifoBytes
	n = min(n, int(f.wr-f.rd), fifoBytes-int(at))
	if n == 0 {
		return nil, false
	}
	if len(f.ends) > 0 {
		n = min(n, int(f.ends[0]-f.rd))
		eop = f.rd+uint64(n) == f.ends[0]
	}
	f.lent = true
	return f.buf[at : int(at)+n], eop
}

func (f *fifo) taken(n int) {
	f.rd += uint64(n)
	if len(f.ends) > 0 && f.ends[0] == f.rd {
		f.ends = append(f.ends[:0], f.ends[1:]...)
	}
	f.lent = false
	if f.discard {
		f.discard = false
		f.reset()
	}
	if f.writer != nil {
		f.writer.kick()
	}
}

// detach keeps the contents of the FIFO for the next start.
func (*fifo) detach() {}

func (f *fifo) reset() {
	if f.lent {
		f.discard = true
		return
	}
	f.rd, f.ends = f.wr, f.ends[:0]
}
