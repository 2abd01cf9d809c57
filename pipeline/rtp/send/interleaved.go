// SPDX-License-Identifier: Apache-2.0

package send

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

const (
	maxInterleaved  = 256              // packets in a call: the kernel takes 1024 vectors, three for each
	leastOfSlices   = 64               // packets of a frame that fills are worth a call
	interleavedHead = 4                // bytes before a packet: '$', channel, length
	fullAgain       = time.Millisecond // after which a socket that was full is asked again
)

// interleaved sends trains over a Conn: many packets in a call, each behind its head, from where they lie. It must stay on the heap,
// where it does not move.
type interleaved struct {
	conn    *Conn
	channel byte // RTCP has the next one
	heads   [maxInterleaved][interleavedHead]byte
	vectors [3 * maxInterleaved]udp.Vector
	full    time.Time // when the socket was full last; zero: it was not
}

// send implements sender.
func (l *interleaved) send(_ int, t *train, from, to int) (packets, bytes int, errno unix.Errno) {
	if !l.conn.mu.TryLock() { // an answer waits for room
		return 0, 0, unix.EAGAIN
	}
	defer l.conn.mu.Unlock()
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

// prepare fills the vectors for packets from to to, and returns how many vectors these are.
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

// keep copies what the socket has not taken of packet i: all but its first n bytes, with the head.
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

// portion is up to which packet of t is sent now, when next is the first that is left and those before to may leave. A connection is
// not paced, TCP does that: what is there goes, in portions between which the other destinations get theirs.
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

// late says whether so much of the frames before waits in the connection that the reader misses t: whole frames are lost, and what
// it gets is not older than a frame.
func (l *interleaved) late(t *train) bool { return l.conn.behind() > t.Bytes() }
