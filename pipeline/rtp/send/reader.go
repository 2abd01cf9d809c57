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
// running. The first packet of a reader, also after a pause, is the first packet of a frame.
type Reader struct {
	sender *transmitter
	d      *destination
	begun  bool
}

// First identifies the first packet that a reader gets (RFC 2326 §12.33).
type First struct {
	Sequence  uint16
	Timestamp uint32
}

// readerBuffer is the maximum size requested for a connection's socket buffer, in bytes.
const readerBuffer = 8 << 20

// ReaderTo opens the sockets for a reader that receives packets at to. No packet of the stream is sent before Begin.
// heard is called for each RTCP compound that the reader sends, with its address; it must not block, and may be nil. The
// caller must close the reader.
func (s *Sink) ReaderTo(to netip.AddrPort, heard func(from netip.Addr)) (*Reader, error) {
	return s.readerAt(to, s.config, "RTSP over UDP", heard)
}

// Interface returns the configured network interface for multicast, or "".
func (s *Sink) Interface() string { return s.config.Interface }

// ReaderGroup is ReaderTo for readers that share a multicast group. Packets are sent through the network
// interface iface.
func (s *Sink) ReaderGroup(to netip.AddrPort, iface string, heard func(from netip.Addr)) (*Reader, error) {
	c := s.config
	c.Interface = iface
	return s.readerAt(to, c, "RTSP by multicast", heard)
}

func (s *Sink) readerAt(to netip.AddrPort, c Config, by string, heard func(from netip.Addr)) (*Reader, error) {
	c.Logger = s.visits
	d, err := s.sender.open(Destination{to.String(), to}, c)
	if err != nil {
		return nil, err
	}
	d.reader, d.heard, d.start.first = by, heard, make(chan First, 1)
	return &Reader{sender: s.sender, d: d}, nil
}

// ReaderOn returns a reader that receives RTP packets on a channel of a connection, and RTCP packets on the next
// channel. The connection remains the caller's.
func (s *Sink) ReaderOn(c *Conn, channel byte) *Reader {
	line := &interleaved{conn: c, channel: channel}
	name := c.RemoteAddr().String()
	d := &destination{
		name: name, line: line, reader: "RTSP over TCP", start: start{first: make(chan First, 1)}, socket: socket{fd: -1},
		log: s.visits.With("destination", name),
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

// Begin starts sending to the reader with the next frame, also after Pause. If frames refer to others, a key frame is
// requested. If Begin fails, it frees the reader's sockets.
func (r *Reader) Begin() error {
	if r.begun {
		r.sender.resume(r.d)
		return nil
	}
	r.begun = true
	return r.sender.attach(r.d)
}

// First waits until the first frame after Begin is about to be sent, and returns the numbers of its first packet. It
// returns false if there is no frame within limit. Of several calls, such as those for the members of a group, only one
// gets the answer.
func (r *Reader) First(limit time.Duration) (First, bool) {
	select {
	case first := <-r.d.start.first:
		return first, true
	case <-time.After(limit):
		return First{}, false
	}
}

// BeginAfter is Begin for a reader on a connection. The message that is returned by message, which must not block, is
// sent before the first packet. message is called with the first packet, or, if there is no frame within limit, with
// false. BeginAfter returns when the message has been queued or written. Its error is that of Begin, or of writing.
func (r *Reader) BeginAfter(limit time.Duration, message func(first First, known bool) []byte) error {
	r.Pause()
	r.sender.precede(r.d, message)
	if err := r.Begin(); err != nil {
		return err
	}
	if _, told := r.First(limit); told || !r.sender.takeBack(r.d) {
		return nil
	}
	_, err := r.d.line.conn.Write(message(First{}, false))
	r.d.begin()
	return err
}

// Pause stops sending packets until the next call of Begin. RTCP packets are still sent. Of a frame that is being sent
// the reader gets no further packet.
func (r *Reader) Pause() {
	r.sender.takeBack(r.d)
	r.d.pause()
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
	x.setDests(append(slices.Clone(old), d))
	x.begin(d)
	if d.line == nil {
		x.hearing.Go(func() { d.hear(x.listen) })
	}
	return nil
}

// begin prepares for the first train of d, which must be among the destinations. The lock must be held.
func (x *transmitter) begin(d *destination) {
	select {
	case <-d.start.first: // of an earlier start
	default:
	}
	d.start.due = d.start.first != nil
	x.keyFrame()
}

// resume lets a destination that has begun, and may be paused, begin with the next train.
func (x *transmitter) resume(d *destination) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.begin(d)
}

// precede makes a message precede the first packet of the next start of d, which must be paused.
func (x *transmitter) precede(d *destination, message func(First, bool) []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d.start.message = message
}

// takeBack cancels the start of d, unless the first train has been sent. It reports whether d had a message, which then
// has not been sent and will not be.
func (x *transmitter) takeBack(d *destination) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	was := d.start.message != nil
	d.start.message, d.start.due = nil, false
	return was
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
	x.setDests(slices.Delete(slices.Clone(old), i, i+1))
	x.bye(old[i])
	return true, old[i].close()
}
