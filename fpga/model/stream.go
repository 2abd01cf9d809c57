package model

import "encoding/binary"

// A streamSource is the card side of a C2H stream channel. Its methods are called with Device.mu held; the bytes
// that next returns stay as they are until taken or detach is called.
type streamSource interface {
	// next returns up to n bytes that can go now, and whether they end a packet; nil when there are none.
	next(n int) (p []byte, eop bool)
	// taken says that the n bytes last offered have gone.
	taken(n int)
	// detach says that the channel's Run bit has fallen.
	detach()
}

// A streamSink is the card side of an H2C stream channel, called with Device.mu held.
type streamSink interface {
	room() int
	push(p []byte, eop bool)
}

// receive moves the next piece of the stream into the descriptor.
func (e *engine) receive(c *descriptor) bool {
	w, d := &e.work, e.d
	d.mu.Lock()
	p, eop := e.source.next(c.length - w.filled)
	d.mu.Unlock()
	if len(p) == 0 && c.length > 0 {
		return false
	}
	if len(p) > 0 {
		_ = d.cfg.Bus.Write(c.dst+uint64(w.filled), p) // posted
	}
	d.mu.Lock()
	e.source.taken(len(p))
	e.perf.count(len(p))
	writeBack := e.control&bitNoWriteBack == 0
	d.mu.Unlock()
	w.filled += len(p)
	if w.filled < c.length && !eop {
		return true
	}
	if writeBack {
		e.writeStreamBack(c.src, w.filled, eop)
	}
	e.complete(c)
	return true
}

// writeStreamBack is the C2H stream write-back: magic and EOP, then the length. Posted.
func (e *engine) writeStreamBack(addr uint64, length int, eop bool) {
	word := uint32(writeBackMagic) << 16
	if eop {
		word |= 1
	}
	b := e.work.writeBack[:]
	binary.LittleEndian.PutUint32(b, word)
	binary.LittleEndian.PutUint32(b[4:], uint32(length))
	_ = e.d.cfg.Bus.Write(addr, b)
}

// send moves the next piece of the descriptor into the stream.
func (e *engine) send(c *descriptor) bool {
	w, d := &e.work, e.d
	if w.scratch == nil {
		w.scratch = make([]byte, fifoBytes)
	}
	n := min(len(w.scratch), c.length-w.filled)
	if e.sink != nil {
		d.mu.Lock()
		n = min(n, e.sink.room())
		d.mu.Unlock()
	}
	if n == 0 && c.length > 0 {
		return false
	}
	if n > 0 && d.cfg.Bus.Read(c.src+uint64(w.filled), w.scratch[:n]) != nil {
		if e.stop(hostUnsupported<<shiftReadError, false) {
			return true
		}
		clear(w.scratch[:n])
	}
	w.filled += n
	end := w.filled == c.length
	d.mu.Lock()
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

// fifoBytes is what a stream holds between its H2C and its C2H channel.
const fifoBytes = 64 << 10

// fifo joins an H2C with a C2H stream channel.
type fifo struct {
	reader, writer *engine // writer is nil when nothing feeds it
	buf            [fifoBytes]byte
	rd, wr         uint64 // bytes that have gone and come
	ends           []uint64
}

func (f *fifo) room() int { return fifoBytes - int(f.wr-f.rd) }

func (f *fifo) push(p []byte, eop bool) {
	k := copy(f.buf[f.wr%fifoBytes:], p)
	copy(f.buf[:], p[k:])
	f.wr += uint64(len(p))
	if last := len(f.ends) - 1; eop && f.wr > f.rd && (last < 0 || f.ends[last] < f.wr) {
		f.ends = append(f.ends, f.wr)
	}
	f.reader.kick()
}

func (f *fifo) next(n int) (p []byte, eop bool) {
	at := f.rd % fifoBytes
	n = min(n, int(f.wr-f.rd), fifoBytes-int(at))
	if len(f.ends) > 0 {
		n = min(n, int(f.ends[0]-f.rd))
		eop = f.rd+uint64(n) == f.ends[0]
	}
	return f.buf[at : int(at)+n], eop
}

func (f *fifo) taken(n int) {
	f.rd += uint64(n)
	if len(f.ends) > 0 && f.ends[0] == f.rd {
		f.ends = append(f.ends[:0], f.ends[1:]...)
	}
	if f.writer != nil {
		f.writer.kick()
	}
}

// detach keeps what is in the FIFO: it comes with the next start.
func (*fifo) detach() {}
