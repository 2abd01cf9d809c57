// SPDX-License-Identifier: Apache-2.0

package send

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

const (
	maxInterleaved  = 256              // maximum packets per call; the kernel accepts 1024 vectors, a packet has up to three
	leastOfSlices   = 64               // minimum number of packets of a filling frame per call
	interleavedHead = 4                // bytes before a packet: '$', channel, length
	fullAgain       = time.Millisecond // pause after which a full socket is tried again
)

// interleaved sends trains over a Conn: many packets per call, each after its interleaved header, without copying. It
// must be allocated on the heap, where it does not move.
type interleaved struct {
	conn    *Conn
	channel byte // RTCP uses the next channel
	heads   [maxInterleaved][interleavedHead]byte
	vectors [3 * maxInterleaved]udp.Vector
	full    time.Time // when the latest send found the socket full; zero if it did not
}

// send implements sender.
func (l *interleaved) send(_ int, t *train, from, to int) (packets, bytes int, errno unix.Errno) {
	if !l.conn.mu.TryLock() { // an answer is waiting for room
		return 0, 0, unix.EAGAIN
	}
	defer l.conn.mu.Unlock()
	to = min(to, from+maxInterleaved)
	n, errno := l.conn.offer(unsafe.Pointer(&l.vectors), l.prepare(t, from, to))
	if l.full = (time.Time{}); errno != 0 {
		l.full = time.Now()
		return 0, 0, errno
	}
	for n > 0 {
		size := interleavedHead + t.Size(from+packets)
		if n < size {
			l.keep(t, from+packets, n)
			l.full = time.Now()
		}
		packets, bytes, n = packets+1, bytes+size-interleavedHead, n-size
	}
	return packets, bytes, 0
}

// prepare fills the vectors for packets [from, to), and returns the number of vectors.
func (l *interleaved) prepare(t *train, from, to int) (n int) {
	each := 2
	if t.Contiguous() {
		each = 1
	}
	for i, v := range t.Vectors(from, to) {
		if i%each == 0 {
			size := t.Size(from + i/each)
			h := &l.heads[i/each]
			*h = [...]byte{'$', l.channel, byte(size >> 8), byte(size)}
			l.vectors[n] = udp.Vector{Base: udp.Address(h[:]), Len: interleavedHead}
			n++
		}
		l.vectors[n] = v
		n++
	}
	return n
}

// keep copies into the Conn's rest the part of packet i that the socket has not accepted: everything after the first n
// bytes, which include the interleaved header.
func (l *interleaved) keep(t *train, i, n int) {
	size := t.Size(i)
	header, payload := t.Packet(i)
	rest := l.conn.rest
	for _, part := range [][]byte{{'$', l.channel, byte(size >> 8), byte(size)}, header, payload} {
		skip := min(n, len(part))
		rest, n = append(rest, part[skip:]...), n-skip
	}
	l.conn.rest = rest
}

// portion returns the end of the packets of t to be sent now, given the first unsent packet next and the end to of
// those that may be sent; it is next if none are to be sent now. A connection is not paced, because TCP does that: all
// available packets are sent, in portions between which the other destinations are served.
func (l *interleaved) portion(t *train, next, to int) int {
	switch {
	case !l.full.IsZero() && time.Since(l.full) < fullAgain:
		return next
	case t.filling.frame == nil:
		to = t.Len()
	case to < t.Len() && to-next < leastOfSlices:
		return next
	}
	return min(to, next+maxInterleaved)
}

// late reports whether the reader must skip t, that is, whether more bytes of earlier frames are unsent than t
// contains. This way whole frames are skipped, and what the reader gets is at most one frame old.
func (l *interleaved) late(t *train) bool { return l.conn.behind() > t.Bytes() }
