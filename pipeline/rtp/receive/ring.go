// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"encoding/binary"
	"net/netip"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

const (
	batchSize  = 32         // datagrams received per system call
	ringSize   = 1024       // datagrams; with 16 packets each, as much as arrives in 10 ms at 16 Gb/s
	packetRoom = 1<<16 + 64 // a datagram, or as many packets as the kernel merges; the odd 64 bytes avoid cache conflicts
	noteRoom   = 64         // bytes for the control message of UDP_GRO
)

// A ring passes datagrams, in order of arrival, from the thread that reads the sockets to the one that puts frames
// together. If possible, the kernel merges packets of the same size that arrive in succession into one datagram
// (UDP_GRO, udp(7)).
//
// The reader gets free places from space and fills them; putDatagrams hands them to the taker, and done returns them to
// the reader. When the ring is empty it starts again at place 0, so that a slow stream uses little of its memory.
type ring struct {
	mem     []byte // outside the Go heap; a page costs nothing until it is touched
	msgs    []udp.Message
	notes   []byte
	buffers []byte
	about   []about

	mu     sync.Mutex
	came   sync.Cond // signals the taker
	freed  sync.Cond // signals the reader
	tail   int       // place of the oldest datagram
	count  int       // number of datagrams in the places from tail on, wrapping at the end of the ring
	awake  bool      // the taker should check the time
	ended  bool      // reception has ended; later datagrams do not count
	endAt  time.Time // when it ended
	before int       // datagrams of count that arrived before the end; -1 after takeDatagrams has returned over
	closed bool
	err    error // from the reader
}

// about holds the data about a datagram besides its bytes.
type about struct {
	at   time.Time // time of arrival
	rtcp bool
	from netip.AddrPort // for RTCP
}

// newRing returns a ring. It touches the first used bytes of the buffers, so that the kernel allocates their pages in
// advance.
func newRing(used int) (*ring, error) {
	heads, vecs, notes := ringSize*udp.MessageSize, ringSize*udp.VectorSize, ringSize*noteRoom
	mem, err := udp.Map(heads + vecs + notes + ringSize*packetRoom)
	if err != nil {
		return nil, err
	}
	g := &ring{
		mem: mem, msgs: udp.Messages(mem[:heads]), about: make([]about, ringSize),
		notes: mem[heads+vecs:][:notes], buffers: mem[heads+vecs+notes:],
	}
	touch(g.buffers[:min(used, len(g.buffers))])
	g.came.L, g.freed.L = &g.mu, &g.mu
	iov := udp.Vectors(mem[heads : heads+vecs])
	for i := range g.msgs {
		iov[i] = udp.Vector{Base: udp.Address(g.buffers[i*packetRoom:]), Len: packetRoom}
		g.msgs[i].Vectors, g.msgs[i].Count = uintptr(unsafe.Pointer(&iov[i])), 1
		g.msgs[i].Control = udp.Address(g.notes[i*noteRoom:])
	}
	return g, nil
}

// space waits for room and returns n free places from i on, at most batchSize; n is 0 when the ring is closed.
func (g *ring) space() (i, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.count == ringSize && !g.closed {
		g.freed.Wait()
	}
	if g.closed {
		return 0, 0
	}
	if g.count == 0 {
		g.tail = 0
	}
	i = (g.tail + g.count) % ringSize
	return i, min(batchSize, ringSize-g.count, ringSize-i)
}

// receive reads up to n datagrams into the places from i on, without blocking, and returns their number. It is not an
// error if there are none.
func (g *ring) receive(fd, i, n int) (int, error) {
	for k := range n {
		g.msgs[i+k].ControlLen = noteRoom
	}
	for {
		got, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&g.msgs[i])), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			now := time.Now()
			for k := range int(got) {
				g.about[i+k] = about{at: now}
			}
			return int(got), nil
		case unix.EINTR:
		case unix.EAGAIN, unix.ECONNREFUSED:
			return 0, nil
		default:
			return 0, os.NewSyscallError("recvmmsg", errno)
		}
	}
}

// control reads an RTCP datagram into place i, without blocking, and reports whether there was one.
func (g *ring) control(fd, i int) bool {
	n, from, err := unix.Recvfrom(fd, g.buffers[i*packetRoom:][:packetRoom], unix.MSG_DONTWAIT)
	if err != nil || n == 0 {
		return false // nothing there, or an error caused by a report of ours
	}
	m := &g.msgs[i]
	m.Len, m.ControlLen, m.Flags = uint32(n), 0, 0
	g.about[i] = about{at: time.Now(), rtcp: true, from: udp.AddrPort(from)}
	return true
}

// putDatagrams hands over the first n places returned by space.
func (g *ring) putDatagrams(n int) {
	if n > 0 {
		g.mu.Lock()
		g.count += n
		g.mu.Unlock()
		g.came.Signal()
	}
}

// wake makes takeDatagrams return even if nothing has arrived.
func (g *ring) wake() {
	g.mu.Lock()
	g.awake = true
	g.mu.Unlock()
	g.came.Signal()
}

// endReception marks the end of reception: datagrams put later do not count.
func (g *ring) endReception(now time.Time) {
	g.mu.Lock()
	g.ended, g.endAt, g.before = true, now, g.count
	g.mu.Unlock()
	g.came.Signal()
}

// takeDatagrams waits for datagrams and returns the oldest n, from place i on; done must return them. n may be 0 after
// a wake, at the end of reception or after fail, whose error it then returns. over is true in one call only: the first
// after the taker is done with all datagrams from before the end of reception.
func (g *ring) takeDatagrams() (i, n int, over bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	over = g.over()
	for ; g.count == 0 && !g.awake && !over && g.err == nil; over = g.over() {
		g.came.Wait()
	}
	n = min(g.count, batchSize, ringSize-g.tail)
	if g.ended && g.before >= 0 {
		n = min(n, g.before)
	}
	if over {
		g.before = -1
	}
	g.awake = false
	return g.tail, n, over, g.err
}

func (g *ring) over() bool { return g.ended && g.before == 0 }

// done returns the places of the oldest n datagrams to the reader.
func (g *ring) done(n int) {
	if n == 0 {
		return
	}
	g.mu.Lock()
	g.tail, g.count = (g.tail+n)%ringSize, g.count-n
	if g.ended && g.before > 0 {
		g.before -= n
	}
	g.mu.Unlock()
	g.freed.Signal()
}

// fail reports an error of the reader to the taker.
func (g *ring) fail(err error) {
	g.mu.Lock()
	g.err = err
	g.mu.Unlock()
	g.came.Signal()
}

// close tells the reader that the taker has finished.
func (g *ring) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.freed.Signal()
}

func (g *ring) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// datagram returns the datagram at place i, the size of the packets in it, of which the last may be shorter, and
// whether the datagram was received completely.
func (g *ring) datagram(i int) (data []byte, size int, whole bool) {
	m := &g.msgs[i]
	n := int(min(m.Len, packetRoom))
	return g.buffers[i*packetRoom:][:n], segment(g.notes[i*noteRoom:][:m.ControlLen], n), m.Flags&unix.MSG_TRUNC == 0
}

// segment returns the packet size in the control message of UDP_GRO, an int, or n if there is none.
func segment(note []byte, n int) int {
	const data = unix.SizeofCmsghdr
	if len(note) < data+4 || binary.NativeEndian.Uint32(note[8:]) != unix.SOL_UDP || binary.NativeEndian.Uint32(note[12:]) != unix.UDP_GRO {
		return n
	}
	if size := int(binary.NativeEndian.Uint32(note[data:])); size > 0 {
		return size
	}
	return n
}

// free unmaps the memory. The ring must no longer be used.
func (g *ring) free() error { return unix.Munmap(g.mem) }
