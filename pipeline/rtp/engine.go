package rtp

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Engine is the way in which packets are handed to the kernel.
type Engine uint8

const (
	Automatic Engine = iota // the best that the socket turns out to do, a lesser one from when it fails
	ZeroCopy                // Segments from packet-ready memory with MSG_ZEROCOPY: the frame is held until the kernel has let go
	Segments                // one sendmsg a burst, cut into packets by UDP_SEGMENT (udp(7)) in the kernel or the network card
	Messages                // one sendmmsg a burst
	Single                  // one sendmsg a packet
)

func (e Engine) String() string {
	return [...]string{"automatic", "zero-copy segments", "segments", "messages", "single"}[e]
}

// An engine hands packets to one socket, in one call of the kernel that does not wait.
type engine interface {
	// send offers packets from to to of t, and returns how many were taken, and their bytes: at least one packet without
	// an error, and not always all.
	send(fd int, t *Train, from, to int) (packets, bytes int, errno unix.Errno)
}

// choose sets the best engine that works, or the one that is wanted. ready says that trains are packet-ready.
func (d *destination) choose(want Engine, ready bool) {
	if d.engine = want; want == Automatic {
		if d.engine = Segments; ready {
			d.engine = ZeroCopy
		}
		if err := probeSegments(); errors.Is(err, errNoSegments) {
			d.log.Info("rtp: this kernel does not cut datagrams into packets", "destination", d.name, "error", err)
			d.engine = Messages
		}
	}
	d.use(d.engine)
	d.log.Info("rtp: sends by "+d.engine.String(), "destination", d.name)
}

// leaveOnTime lets the kernel pace, when a probe by b shows that it does.
func (d *destination) leaveOnTime(c Config, b []byte) {
	if d.engine > Segments {
		return
	}
	clock, err := findDeparture(d.link, d.addr, c, b)
	if err == nil {
		err = clock.set(d.fd)
	}
	if err != nil {
		d.log.Debug("rtp: the kernel does not pace on this path, a timer does", "destination", d.name, "error", err)
		return
	}
	room := 2 * c.Burst * c.MTU // that the kernel counts for a burst, with its overhead
	if granted, err := setBuffer(d.fd, unix.SO_SNDBUF, maxAhead*room); err == nil {
		d.buffer = granted
	}
	d.clock, d.ahead = &clock, min(maxAhead, d.buffer/room)
	d.use(d.engine)
	d.log.Info("rtp: the kernel paces, by "+clock.name, "destination", d.name, "bursts_ahead", d.ahead)
}

// use takes engine e, or the next one that the socket has.
func (d *destination) use(e Engine) {
	if d.engine = e; e > Segments {
		d.ahead = 0 // these do not say when
	}
	switch e {
	case ZeroCopy:
		z, err := newZeroCopy(d.fd)
		if err != nil {
			d.log.Info("rtp: no zero-copy", "destination", d.name, "error", err)
			d.use(Segments)
			return
		}
		d.best, d.zero = z, z
		z.clock = d.clock
	case Segments:
		s := newSegments()
		s.clock = d.clock
		d.best = s
	case Messages:
		d.best = messages{}
	default:
		d.best = single{}
	}
	d.now = d.best
}

// reap learns what the kernel has let go of. When it has made copies after all, as for a receiver on this machine,
// zero-copy is given up: it costs more than it saves.
func (d *destination) reap() {
	if d.zero == nil {
		return
	}
	d.zero.reap(d.fd)
	if d.zero.copied && d.engine == ZeroCopy {
		d.use(Segments)
		d.log.Info("rtp: sends by "+d.engine.String()+" from now on: the kernel copies on this path", "destination", d.name)
	}
}

// fallBack goes on with a lesser engine when the one in use fails with errno. What has to do with this packet or this
// moment alone is true for the rest of the train; what the kernel or the card cannot do is true for ever.
func (d *destination) fallBack(errno unix.Errno) bool {
	switch d.now.(type) {
	case single:
		return false
	case messages:
		if errno != unix.ENOSYS {
			return false
		}
	}
	switch errno {
	case unix.EMSGSIZE, unix.ENOBUFS:
		d.now = messages{}
	case unix.EIO, unix.EINVAL, unix.EOPNOTSUPP, unix.EFAULT, unix.ENOSYS:
		d.use(d.engine + 1)
		d.log.Warn("rtp: sends by "+d.engine.String()+" from now on", "destination", d.name, "error", errno)
	default:
		return false
	}
	return true
}

// messages is sendmmsg, a message a packet. The thread does not block, so the runtime need not know.
type messages struct{}

func (messages) send(fd int, t *Train, from, to int) (packets, bytes int, errno unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&t.msgs[from])), uintptr(to-from), unix.MSG_DONTWAIT, 0, 0)
	if errno == 0 {
		packets = int(n)
	}
	for i := range packets {
		bytes += int(t.msgs[from+i].len)
	}
	return packets, bytes, errno
}

// single is sendmsg.
type single struct{}

func (single) send(fd int, t *Train, from, _ int) (packets, bytes int, errno unix.Errno) {
	// A mmsghdr begins with its msghdr.
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&t.msgs[from])), unix.MSG_DONTWAIT)
	return 1, int(n), errno
}

const (
	maxSegments = 64    // in a call; newer kernels take 128
	maxDatagram = 65507 // bytes of all segments together: they are one UDP datagram until they are cut

)

// segments is UDP_SEGMENT: the kernel takes headers and payloads of many packets as one datagram, which is cut late.
// All of its packets have one size but the last, which may be shorter.
type segments struct {
	msg     mmsghdr
	vec     iovec // of packet-ready memory
	control struct {
		time, segment [24]byte // a cmsghdr each, and an int64 and a uint16
	}
	clock *departure // nil: packets leave at once
}

// newSegments fills in what is the same for all calls. The struct must stay on the heap, where it does not move.
func newSegments() *segments {
	s := &segments{}
	putControl(s.control.time[:], unix.SOL_SOCKET, unix.SCM_TXTIME, 8)
	putControl(s.control.segment[:], unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	return s
}

func (s *segments) send(fd int, t *Train, from, to int) (packets, bytes int, errno unix.Errno) {
	packets = s.prepare(t, from, to)
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&s.msg)), unix.MSG_DONTWAIT)
	return packets, int(n), errno
}

// prepare makes the message of as many packets as fit.
func (s *segments) prepare(t *Train, from, to int) (packets int) {
	size := t.size(from)
	most := min(to-from, maxSegments, maxDatagram/size)
	n, last := 1, size
	if t.uniform > 0 {
		n = most
	}
	for n < most && last == size {
		if next := t.size(from + n); next <= size {
			last = next
			n++
		} else {
			break
		}
	}
	vec := &t.iov[from*t.vectors]
	s.msg.iov, s.msg.iovLen = uintptr(unsafe.Pointer(vec)), uint64(n*t.vectors)
	if t.vectors == 1 { // one packet after the other
		s.vec = iovec{vec.base, uint64((n-1)*size + last)}
		s.msg.iov, s.msg.iovLen = uintptr(unsafe.Pointer(&s.vec)), 1
	}
	s.msg.control, s.msg.controlLen = uintptr(unsafe.Pointer(&s.control.segment)), 0
	if n > 1 {
		ne.PutUint16(s.control.segment[16:], uint16(size))
		s.msg.controlLen += uint64(len(s.control.segment))
	}
	if s.clock != nil {
		ne.PutUint64(s.control.time[16:], uint64(s.clock.at(t.departure)))
		s.msg.control = uintptr(unsafe.Pointer(&s.control.time))
		s.msg.controlLen += uint64(len(s.control.time))
	}
	return n
}

// errNoSegments is a kernel that does not cut datagrams, or cuts them wrongly.
var errNoSegments = errors.New("no UDP_SEGMENT")

// probeSegments sends a datagram of two and a half segments to itself. An error other than errNoSegments says nothing
// about the kernel: its loopback may be down.
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
	for _, want := range []int{100, 100, 50} { // the loopback delivers within the call, or soon
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fds[1]), Events: unix.POLLIN}}, 500)
		if n, err := unix.Read(fds[1], b); err != nil || n != want {
			return fmt.Errorf("%w: a segment of %d bytes arrived with %d: %v", errNoSegments, want, n, err)
		}
	}
	return nil
}
