// SPDX-License-Identifier: Apache-2.0

package send

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/pion/rtcp"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A Reader is a destination that has requested the stream, for instance by RTSP. Readers come and go while the sink is
// running. The first packet of a reader is the first packet of a frame.
type Reader struct {
	sender *transmitter
	d      *destination
	begun  bool
}

// readerBuffer is the maximum size requested for a connection's socket buffer, in bytes.
const readerBuffer = 8 << 20

// ReaderTo opens the sockets for a reader that receives packets at to. No packet of the stream is sent before Begin.
// The caller must close the reader.
func (s *Sink) ReaderTo(to netip.AddrPort) (*Reader, error) {
	return s.readerAt(to, s.config, "RTSP over UDP")
}

// Interface returns the configured network interface for multicast, or "".
func (s *Sink) Interface() string { return s.config.Interface }

// ReaderGroup is ReaderTo for readers that share a multicast group. Packets are sent through the network interface
// iface.
func (s *Sink) ReaderGroup(to netip.AddrPort, iface string) (*Reader, error) {
	c := s.config
	c.Interface = iface
	return s.readerAt(to, c, "RTSP by multicast")
}

func (s *Sink) readerAt(to netip.AddrPort, c Config, by string) (*Reader, error) {
	d, err := s.sender.open(Destination{to.String(), to}, c)
	if err != nil {
		return nil, err
	}
	d.reader = by
	return &Reader{sender: s.sender, d: d}, nil
}

// ReaderOn returns a reader that receives RTP packets on a channel of a connection, and RTCP packets on the next
// channel. The connection remains the caller's.
func (s *Sink) ReaderOn(c *Conn, channel byte) *Reader {
	line := &interleaved{conn: c, channel: channel}
	name := c.RemoteAddr().String()
	d := &destination{
		name: name, line: line, reader: "RTSP over TCP", socket: socket{fd: -1}, log: s.config.Logger.With("destination", name),
		way: way{kind: Single, best: line, now: line, ahead: maxAhead, burst: s.config.Burst},
	}
	d.counters.head = uint64(s.config.HeaderSize())
	size := min(s.format.Size(), readerBuffer)
	_ = c.raw.Control(func(fd uintptr) { // otherwise the kernel chooses a size (tcp(7)), and large frames may be cut
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size)
	})
	return &Reader{sender: s.sender, d: d}
}

// TTL returns the TTL of the stream's multicast packets.
func (r *Reader) TTL() int { return cmp.Or(r.sender.config.TTL, 1) }

// Ports returns the local ports from which RTP and RTCP are sent, or zeros for a connection.
func (r *Reader) Ports() (rtp, rtcp int) {
	if r.d.line != nil {
		return 0, 0
	}
	port := r.d.socket.conn.LocalAddr().(*net.UDPAddr).Port
	return port - 1, port
}

// Begin starts sending to the reader with the next frame. If frames refer to others, a key frame is requested. If Begin
// fails, it frees the reader's sockets.
func (r *Reader) Begin() error {
	r.begun = true
	return r.sender.attach(r.d)
}

// Hear handles an RTCP packet that the reader sent over its connection.
func (r *Reader) Hear(p rtcp.Packet) {
	r.d.counters.storeReports(receptions([]rtcp.Packet{p}, r.SSRC(), time.Now()), r.d.name)
	if asksKeyFrame(p, r.SSRC()) {
		r.sender.keyFrame()
	}
}

// Stats returns the reader's counters.
func (r *Reader) Stats() DestinationStats { return r.d.stats() }

// Close frees the reader's sockets. If Begin has been called, it sends BYE first, and the reader does not get the rest
// of the frame being sent.
func (r *Reader) Close() error {
	if !r.begun {
		return r.d.close()
	}
	_, err := r.sender.detach(func(d *destination) bool { return d == r.d }) // if the output has ended, it has closed the destination
	return err
}

// SSRC returns the SSRC of the packets being sent.
func (r *Reader) SSRC() uint32 { return r.sender.identity.ssrc.Load() }

// Session returns the stream's session description for RTSP, in which SETUP determines the destination (RFC 2326
// appendix C). control is the stream's URL, relative to that of the session; from is this machine's address.
func (s *Sink) Session(from netip.Addr, control string) ([]byte, error) {
	to := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if from.Is6() {
		to = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	return rtp.Describe(s.config.Stream, s.format, rtp.Path{From: from, To: to, Control: control})
}

// open opens the sockets of a destination with the sending options of c.
func (x *transmitter) open(dest Destination, c Config) (*destination, error) {
	d, err := newDestination(dest, c, x.buffer, x.ready)
	if err != nil {
		return nil, err
	}
	x.warn(d)
	if x.span > 0 {
		x.mu.Lock()
		b := slices.Clone(x.control.SenderReport(time.Now(), 0, 0))
		x.mu.Unlock()
		d.way.leaveOnTime(&d.socket, c, b)
	}
	return d, nil
}

// attach adds a destination, starting with the next train, and requests a key frame. If it returns an error, it has
// closed the destination.
func (x *transmitter) attach(d *destination) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := *x.dests.Load()
	taken := d.line == nil && slices.ContainsFunc(old, func(o *destination) bool { return o.line == nil && o.socket.addr == d.socket.addr })
	if taken || x.closed {
		reason := "is sent to already"
		if x.closed {
			reason = "the output has ended"
		}
		return errors.Join(fmt.Errorf("%w: %s: %s", ErrDestination, d.name, reason), d.close())
	}
	list := append(slices.Clone(old), d)
	x.dests.Store(&list)
	x.keyFrame()
	if d.line == nil {
		x.hearing.Go(func() { d.hear(x.listen) })
	}
	return nil
}

// detach removes the first destination for which meant returns true, sends it BYE and closes it. It reports whether
// there was one; if the transmitter is closed, it does nothing and returns false.
func (x *transmitter) detach(meant func(*destination) bool) (was bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := *x.dests.Load()
	i := slices.IndexFunc(old, meant)
	if i < 0 || x.closed {
		return false, nil
	}
	list := slices.Delete(slices.Clone(old), i, i+1)
	x.dests.Store(&list)
	x.bye(old[i])
	return true, old[i].close()
}
