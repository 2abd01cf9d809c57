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
	batchSize  = 32         // datagrams taken in one call of the kernel
	ringSize   = 1024       // datagrams: at 16 packets each, as much as 16 Gb/s bring in 10 ms
	packetRoom = 1<<16 + 64 // a datagram, or as many packets as the kernel puts together; the odd 64 keep them apart in the cache
	noteRoom   = 64         // bytes of control message: one of UDP_GRO
)

// A ring has datagrams on their way from the thread that empties the sockets to the one that puts frames together, in the order in
// which they came. The kernel hands packets of one size that came in a row over as one datagram when it can (UDP_GRO, udp(7)).
//
// The reader asks for room with space and fills it; put makes it the taker's, and done the reader's again. When the ring is
// empty it begins again, so that a slow stream uses little of its memory.
type ring struct {
	mem     []byte // outside the Go heap; a page costs nothing until it is touched
	msgs    []udp.Message
	notes   []byte
	buffers []byte
	about   []about

	mu     sync.Mutex
	came   sync.Cond // for the taker
	freed  sync.Cond // for the reader
	tail   int       // the oldest datagram
	count  int       // datagrams from tail on, around the end of the ring
	awake  bool      // the taker is to look at the time
	ended  bool      // the reader has come to the end of what counts
	endAt  time.Time // when it did
	before int       // datagrams of count that came before the end
	closed bool
	err    error // the reader's
}

// about is what the ring knows about a datagram besides its bytes.
type about struct {
	at   time.Time // when it came
	rtcp bool
	from netip.AddrPort // of RTCP
}

// newRing makes a ring of which as many bytes as are expected to be used have pages from the beginning.
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

// space waits for room and returns n free places from i on, at most batchSize; none when the ring is closed.
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

// receive takes up to n datagrams into the places from i on, without waiting; none is no error.
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

// control takes an RTCP datagram into place i, without waiting, and says whether there was one.
func (g *ring) control(fd, i int) bool {
	n, from, err := unix.Recvfrom(fd, g.buffers[i*packetRoom:][:packetRoom], unix.MSG_DONTWAIT)
	if err != nil || n == 0 {
		return false // nothing there, or the answer to a report of ours
	}
	m := &g.msgs[i]
	m.Len, m.ControlLen, m.Flags = uint32(n), 0, 0
	g.about[i] = about{at: time.Now(), rtcp: true, from: udp.AddrPort(from)}
	return true
}

// put hands the first n places of the space over.
func (g *ring) put(n int) {
	if n > 0 {
		g.mu.Lock()
		g.count += n
		g.mu.Unlock()
		g.came.Signal()
	}
}

// wake makes take return although nothing may have come.
func (g *ring) wake() {
	g.mu.Lock()
	g.awake = true
	g.mu.Unlock()
	g.came.Signal()
}

// end says that what is put from now on comes after the end.
func (g *ring) end(now time.Time) {
	g.mu.Lock()
	g.ended, g.endAt, g.before = true, now, g.count
	g.mu.Unlock()
	g.came.Signal()
}

// take waits and returns the oldest n datagrams, from place i on, which done gives back. Without any something else has
// happened: a wake, or over, the end of what counts, which is told once.
func (g *ring) take() (i, n int, over bool, err error) {
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

// done gives n datagrams back.
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

// fail ends the reader's part with an error.
func (g *ring) fail(err error) {
	g.mu.Lock()
	g.err = err
	g.mu.Unlock()
	g.came.Signal()
}

// close ends the taker's part.
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

// datagram returns the datagram at place i, the size of the packets in it, of which the last may be shorter, and whether all
// of it fitted.
func (g *ring) datagram(i int) (data []byte, size int, whole bool) {
	m := &g.msgs[i]
	n := int(min(m.Len, packetRoom))
	return g.buffers[i*packetRoom:][:n], segment(g.notes[i*noteRoom:][:m.ControlLen], n), m.Flags&unix.MSG_TRUNC == 0
}

// segment reads the control message of UDP_GRO, an int; without one it is n.
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

// free gives the memory back; nobody may use the ring any more.
func (g *ring) free() error { return unix.Munmap(g.mem) }
