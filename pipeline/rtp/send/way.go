package send

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// Engine is the way in which packets are handed to the kernel.
type Engine uint8

const (
	Automatic Engine = iota // the best that the socket turns out to do, a lesser one from when it fails
	ZeroCopy                // Segments from packet-ready memory with MSG_ZEROCOPY: the frame is held until the kernel has let go
	Segments                // a message a burst, cut into packets by UDP_SEGMENT (udp(7)) in the kernel or the network card
	Messages                // a message a packet, by sendmmsg
	Single                  // a call a packet, by sendmsg
)

func (e Engine) String() string {
	return [...]string{"automatic", "zero-copy segments", "segments", "messages", "single"}[e]
}

// An engine hands packets to one socket, in one call of the kernel that does not wait.
type engine interface {
	// send offers packets from to to of t, and returns how many were taken, and their bytes: at least one packet without
	// an error, and not always all.
	send(fd int, t *train, from, to int) (packets, bytes int, errno unix.Errno)
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
	if granted, err := udp.SetBuffer(d.fd, unix.SO_SNDBUF, maxAhead*room); err == nil {
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
		z, err := newZeroCopy(d.fd, d.burst)
		if err != nil {
			d.log.Info("rtp: no zero-copy", "destination", d.name, "error", err)
			d.use(Segments)
			return
		}
		d.best, d.zero = z, z
		z.clock = d.clock
	case Segments:
		s := newSegments(d.burst)
		s.clock = d.clock
		d.best = s
	case Messages:
		d.best = &messages{}
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
	case *messages:
		if errno != unix.ENOSYS {
			return false
		}
	}
	switch errno {
	case unix.EMSGSIZE, unix.ENOBUFS:
		d.now = &messages{}
	case unix.EIO, unix.EINVAL, unix.EOPNOTSUPP, unix.EFAULT, unix.ENOSYS:
		d.use(d.engine + 1)
		d.log.Warn("rtp: sends by "+d.engine.String()+" from now on", "destination", d.name, "error", errno)
	default:
		return false
	}
	return true
}

// A caller calls sendmmsg, which does not tell the error that stopped it behind the first message. The next call is for one message
// alone: what is still so fails it. Only a refusal (ECONNREFUSED) is forgotten; the next packet brings another.
type caller struct{ alone bool }

// most is how many messages the next call may be for.
func (c *caller) most(n int) int {
	if c.alone {
		return 1
	}
	return n
}

// send says how many messages were taken. The thread does not block, and is back within a millisecond (volley times maxDatagram at
// the most), so the runtime need not know.
func (c *caller) send(fd int, m []udp.Message, flags uintptr) (taken int, errno unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), unix.MSG_DONTWAIT|flags, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	c.alone = int(n) < len(m)
	return int(n), 0
}

// maxMessages are those of one packet in a call. The kernel takes 1024.
const maxMessages = 128

// messages is a message a packet.
type messages struct{ caller caller }

func (m *messages) send(fd int, t *train, from, to int) (packets, bytes int, errno unix.Errno) {
	to = min(to, from+m.caller.most(maxMessages))
	sent := t.Messages(from, to)
	if packets, errno = m.caller.send(fd, sent, 0); errno != 0 {
		return 0, 0, errno
	}
	for i := range packets {
		bytes += int(sent[i].Len)
	}
	return packets, bytes, errno
}

// single is sendmsg.
type single struct{}

func (single) send(fd int, t *train, from, _ int) (packets, bytes int, errno unix.Errno) {
	// A udp.Message begins with its msghdr.
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&t.Messages(from, from+1)[0])), unix.MSG_DONTWAIT)
	return 1, int(n), errno
}

const (
	maxSegments = 64    // in a message; newer kernels take 128
	maxDatagram = 65507 // bytes of all segments together: they are one UDP datagram until they are cut
	volley      = 16    // messages in a call
)

// segments is UDP_SEGMENT: the kernel takes headers and payloads of many packets as one datagram, which is cut late.
// All of its packets have one size but the last, which may be shorter.
type segments struct {
	caller   caller
	burst    int // packets in a message
	msgs     [volley]udp.Message
	packets  [volley]int
	vecs     [volley]udp.Vector // of packet-ready memory
	controls [volley]struct {
		time, segment [24]byte // a cmsghdr each, and an int64 and a uint16
	}
	clock *departure // nil: packets leave at once
}

// newSegments fills in what is the same for all calls. The struct must stay on the heap, where it does not move.
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

// offer sends up to most messages.
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

// prepare makes message i of as many packets as fit.
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
	if t.Contiguous() { // one packet after the other
		s.vecs[i] = udp.Vector{Base: vecs[0].Base, Len: uint64((n-1)*size + last)}
		m.Vectors, m.Count = uintptr(unsafe.Pointer(&s.vecs[i])), 1
	}
	m.Control, m.ControlLen = uintptr(unsafe.Pointer(&c.segment)), 0
	if n > 1 {
		ne.PutUint16(c.segment[16:], uint16(size))
		m.ControlLen += uint64(len(c.segment))
	}
	if s.clock != nil {
		ne.PutUint64(c.time[16:], uint64(s.clock.at(t.departure)))
		m.Control = uintptr(unsafe.Pointer(&c.time))
		m.ControlLen += uint64(len(c.time))
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
