package send

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// A destination is where one copy of the stream goes: a connected RTP socket and an RTCP socket on the next port.
type destination struct {
	name string // as configured
	addr netip.AddrPort
	rtcp netip.AddrPort
	fd   int
	conn *net.UDPConn // RTCP, both ways
	log  *slog.Logger

	engine Engine     // the one that works
	best   engine     // of engine
	now    engine     // for this train
	zero   *zeroCopy  // nil when it never worked
	clock  *departure // by which the kernel paces; nil: it does not
	ahead  int        // bursts that the kernel may keep until their time
	burst  int        // packets that leave together

	link    string     // name of the interface; "": not known
	head    uint64     // bytes of an RTP header
	next    int        // packet of the train being sent
	clogged bool       // for want of buffers below the socket
	stale   bool       // a refusal before the train's first packet has been seen
	why     unix.Errno // for which the rest of the train was given up
	told    unix.Errno // the why that was told last
	logged  time.Time  // when the log was told last

	packets, bytes, frames, cut, dropped, refused, errors atomic.Uint64

	buffer int // bytes granted
	mu     sync.Mutex
	last   string // error
	heard  []Report
}

// newDestination opens the sockets. The RTCP socket's local port follows the RTP socket's.
func newDestination(name string, c Config, buffer int, ready bool) (*destination, error) {
	addr, err := resolve(name)
	if err != nil {
		return nil, err
	}
	d := &destination{name: name, addr: addr, head: uint64(c.HeaderSize()), rtcp: netip.AddrPortFrom(addr.Addr(), addr.Port()+1), log: c.Logger, burst: c.Burst}
	for range 16 { // the port after a free one may be taken
		if d.fd, d.buffer, err = dial(addr, c, buffer); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrDestination, name, err)
		}
		if d.conn, err = listenAfter(d.fd, c, addr.Addr()); err == nil {
			if d.link = c.Interface; d.link == "" || !addr.Addr().IsMulticast() {
				d.link = udp.InterfaceOf(d.local())
			}
			d.choose(c.Engine, ready)
			return d, nil
		}
		_ = unix.Close(d.fd)
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return nil, fmt.Errorf("%w: %s: RTCP socket: %w", ErrDestination, name, err)
}

// listenAfter opens a UDP socket on the local address of fd and the port after it, with the options of an RTP socket.
func listenAfter(fd int, c Config, dest netip.Addr) (*net.UDPConn, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return nil, err
	}
	local := udp.AddrPort(sa)
	if local.Port() == 65535 {
		return nil, unix.EADDRINUSE
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local.Addr(), local.Port()+1)))
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		var oerr error
		err = errors.Join(raw.Control(func(fd uintptr) { oerr = setOptions(int(fd), c, dest) }), oerr)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// begin starts a new train.
func (d *destination) begin() { d.next, d.stale, d.why, d.now = 0, false, 0, d.best }

// open says whether packets before to are still to be sent.
func (d *destination) open(to int) bool { return d.why == 0 && d.next < to }

// lagging says whether the train before was cut because the socket buffer stayed full.
func (d *destination) lagging() bool { return d.told == unix.EAGAIN }

// push sends up to packet to, until the socket buffer is full.
func (d *destination) push(t *train, to int) {
	for d.open(to) {
		d.clogged = false
		n, bytes, errno := d.now.send(d.fd, t, d.next, to)
		switch {
		case errno == 0:
			d.sent(n, bytes)
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return
		case errno == unix.ECONNREFUSED: // the answer to an earlier packet; at a train's start that may be long ago
			d.refused.Add(1)
			if d.next > 0 || d.stale {
				d.giveUp(t, errno)
			}
			d.stale = true
		case d.fallBack(errno):
		case errno == unix.ENOBUFS: // full somewhere below: as a socket buffer that is full
			d.errors.Add(1)
			d.clogged = true
			return
		default:
			d.errors.Add(1)
			d.giveUp(t, errno)
		}
	}
}

func (d *destination) sent(n, bytes int) {
	d.next += n
	d.packets.Add(uint64(n))
	d.bytes.Add(uint64(bytes))
}

// giveUp drops the rest of the train.
func (d *destination) giveUp(t *train, why unix.Errno) {
	d.why = why
	d.cut.Add(1)
	d.dropped.Add(uint64(t.Len() - d.next))
}

// end ends a train and says whether it failed. Nobody listening is no failure of the stream.
func (d *destination) end() (failed bool) {
	if d.why == 0 {
		d.frames.Add(1)
	}
	if d.why != d.told {
		d.tell()
	}
	return d.why != 0 && d.why != unix.ECONNREFUSED
}

// tellEvery is how often the log hears of a destination: a receiver that is away answers every other frame.
const tellEvery = time.Minute

// tell notes that the state of the destination has changed, and logs it if it has not just been logged.
func (d *destination) tell() {
	d.told = d.why
	log := time.Since(d.logged) >= tellEvery
	if log {
		d.logged = time.Now()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = ""
	switch d.why {
	case 0:
		if log {
			d.log.Info("rtp: destination takes whole frames again", "destination", d.name)
		}
		return
	case unix.ECONNREFUSED:
		d.last = "nobody listens: start the receiver"
	case unix.EAGAIN:
		d.last = "the network takes packets too slowly: the rest of the frame was dropped"
	case unix.EMSGSIZE:
		d.last = "packets are longer than the path takes: lower mtu"
	default:
		d.last = d.why.Error()
	}
	if log {
		d.log.Warn("rtp: destination loses frames", "destination", d.name, "error", d.last)
	}
}

// report sends an RTCP compound. A failure is counted and does no harm: the next one comes.
func (d *destination) report(b []byte) {
	if _, err := d.conn.WriteToUDPAddrPort(b, d.rtcp); err != nil {
		d.errors.Add(1)
	}
}

// octets is the payload sent, as sender reports count it (RFC 3550 §6.4.1).
func (d *destination) octets() uint64 { return d.bytes.Load() - d.head*d.packets.Load() }

// local is the address that packets come from.
func (d *destination) local() netip.Addr {
	return d.conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

func (d *destination) close() error {
	if d.zero != nil {
		d.zero.letGo()
	}
	return errors.Join(d.conn.Close(), unix.Close(d.fd))
}
