// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

const (
	maxSegments = 64    // packets per message; newer kernels accept 128
	maxDatagram = 65507 // total bytes of all segments, which are one UDP datagram until they are cut
	volley      = 16    // the most messages per call
)

// segments sends with UDP_SEGMENT: the kernel accepts headers and payloads of many packets as one datagram, and cuts it
// into packets late. All packets of a datagram have the same size, except that the last one may be shorter.
type segments struct {
	caller   caller
	burst    int // maximum number of packets per message
	msgs     [volley]udp.Message
	packets  [volley]int
	vecs     [volley]udp.Vector // for packet-ready memory
	controls [volley]struct {
		time, segment [24]byte // a cmsghdr each, with an int64 or a uint16
	}
	departure *departure // nil if packets leave as soon as they are sent
}

// newSegments returns a segments with the parts filled in that are the same for all calls. It must stay on the heap,
// where it does not move.
func newSegments(burst int) *segments {
	s := &segments{burst: burst}
	for i := range s.controls {
		putControl(s.controls[i].time[:], unix.SOL_SOCKET, unix.SCM_TXTIME, 8)
		putControl(s.controls[i].segment[:], unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	}
	return s
}

func (s *segments) send(fd int, t *train, from, to int) (packets, bytes int, errno unix.Errno) {
	packets, bytes, _, errno = s.offer(fd, t, from, to, volley, 0)
	return packets, bytes, errno
}

// offer sends packets [from, to), or as many of them as fit into most messages. It returns the numbers of packets,
// bytes and messages that the kernel accepted.
func (s *segments) offer(fd int, t *train, from, to, most int, flags uintptr) (packets, bytes, taken int, errno unix.Errno) {
	n := 0
	for most = s.caller.most(most); n < most && from < to; n++ {
		s.packets[n] = s.prepare(n, t, from, min(to, from+s.burst))
		from += s.packets[n]
	}
	if taken, errno = s.caller.send(fd, s.msgs[:n], flags); errno != 0 {
		return 0, 0, 0, errno
	}
	for i := range taken {
		packets += s.packets[i]
		bytes += int(s.msgs[i].Len)
	}
	return packets, bytes, taken, 0
}

// prepare fills message i with as many of packets [from, to) as fit, and returns their number.
func (s *segments) prepare(i int, t *train, from, to int) (packets int) {
	size := t.Size(from)
	most := min(to-from, maxSegments, maxDatagram/size)
	n, last := 1, size
	if t.Uniform() {
		n = most
	}
	for n < most && last == size {
		if next := t.Size(from + n); next <= size {
			last = next
			n++
		} else {
			break
		}
	}
	m, c, vecs := &s.msgs[i], &s.controls[i], t.Vectors(from, from+n)
	m.Vectors, m.Count = uintptr(unsafe.Pointer(&vecs[0])), uint64(len(vecs))
	if t.Contiguous() { // the packets are adjacent
		s.vecs[i] = udp.Vector{Base: vecs[0].Base, Len: uint64((n-1)*size + last)}
		m.Vectors, m.Count = uintptr(unsafe.Pointer(&s.vecs[i])), 1
	}
	m.Control, m.ControlLen = uintptr(unsafe.Pointer(&c.segment)), 0
	if n > 1 {
		ne.PutUint16(c.segment[16:], uint16(size))
		m.ControlLen += uint64(len(c.segment))
	}
	if s.departure != nil {
		ne.PutUint64(c.time[16:], uint64(s.departure.at(s.departure.next)))
		m.Control = uintptr(unsafe.Pointer(&c.time))
		m.ControlLen += uint64(len(c.time))
	}
	return n
}

// errNoSegments means that the kernel does not segment datagrams, or does so wrongly.
var errNoSegments = errors.New("no UDP_SEGMENT")

// probeSegments checks UDP_SEGMENT by sending a datagram of two and a half segments over the loopback. Errors that do
// not wrap errNoSegments say nothing about the kernel; for instance its loopback may be down.
func probeSegments() (err error) {
	fds := [2]int{-1, -1}
	defer func() {
		for _, fd := range fds {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	}()
	for i := range fds {
		if fds[i], err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return os.NewSyscallError("socket", err)
		}
	}
	if err := unix.Bind(fds[1], &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	local, err := unix.Getsockname(fds[1])
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	if err := unix.Connect(fds[0], local); err != nil {
		return os.NewSyscallError("connect", err)
	}
	if err := unix.SetsockoptInt(fds[0], unix.SOL_UDP, unix.UDP_SEGMENT, 100); err != nil {
		return fmt.Errorf("%w: %w", errNoSegments, err)
	}
	if _, err := unix.Write(fds[0], make([]byte, 250)); err != nil {
		return os.NewSyscallError("send", err)
	}
	b := make([]byte, 300)
	for _, want := range []int{100, 100, 50} { // the loopback delivers within the call, or soon after
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fds[1]), Events: unix.POLLIN}}, 500)
		if n, err := unix.Read(fds[1], b); err != nil || n != want {
			return fmt.Errorf("%w: a segment of %d bytes arrived with %d: %v", errNoSegments, want, n, err)
		}
	}
	return nil
}
