// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// strict is a receiver of UYVY that tolerates nothing, written from RFC 3550 and RFC 4175 alone, without code of the
// sender. Its sockets are open before the stream begins, so it must see every packet.
type strict struct {
	width, height int
	ticks         uint32 // per frame period
	media         *net.UDPConn
	control       *net.UDPConn
	dropped       uint32 // datagrams that the kernel had no room for (SO_RXQ_OVFL, socket(7))

	packets uint32
	octets  []uint32 // payload octets of that many packets, as sender reports count them
	ssrc    uint32
	next    uint32 // extended sequence number
	open    bool   // the frame has begun, and its last packet has not come
	stamp   uint32 // of the current or the last frame
	first   uint32 // timestamp
	periods uint32 // from the first frame to this one
	line    int    // the next line
	pixel   int
	picture uint32   // CRC-32C of the frame so far
	frames  []uint32 // CRC-32C

	reports int
	offset  uint32 // between timestamps, from the first report
	told    sent   // from the last report
	due     []sent // counts of packets that have not arrived
	cname   string
	bye     bool
}

// errLossy means that the machine is too slow: the receiver has lost packets.
var errLossy = errors.New("the kernel had no room for datagrams")

func newStrict(t *testing.T, port, width, height, fps int) *strict {
	t.Helper()
	s := &strict{width: width, height: height, ticks: uint32(90000 / fps), octets: []uint32{0}}
	for i, conn := range []**net.UDPConn{&s.media, &s.control} {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port + i})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetReadBuffer(16 << 20)
		raw, err := c.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		*conn = c
	}
	return s
}

// receive reads until the source sends BYE.
func (s *strict) receive() error {
	compounds := make(chan []byte, 1000)
	go func() {
		defer close(compounds)
		for packet := make([]byte, 2000); ; {
			n, err := s.control.Read(packet)
			if err != nil {
				return
			}
			compounds <- bytes.Clone(packet[:n])
		}
	}()
	packet, oob := make([]byte, 9000), make([]byte, 64)
	for silent := 0; silent < 200; { // 10 s
		n, err := s.read(packet, oob)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			silent, err = silent+1, nil
		case err == nil:
			silent, err = 0, s.rtp(packet[:n])
		}
		for err == nil && len(compounds) > 0 {
			err = s.compound(<-compounds)
		}
		switch {
		case s.dropped > 0:
			return fmt.Errorf("%w: %d", errLossy, s.dropped)
		case err != nil:
			return err
		case s.bye && silent > 0:
			return s.ended()
		}
	}
	return errors.New("there was no BYE")
}

// read waits up to 50 ms for a packet.
func (s *strict) read(packet, oob []byte) (int, error) {
	_ = s.media.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	n, noob, _, _, err := s.media.ReadMsgUDP(packet, oob)
	list, e := unix.ParseSocketControlMessage(oob[:noob])
	for _, m := range list {
		if e == nil && m.Header.Type == unix.SO_RXQ_OVFL {
			s.dropped = max(s.dropped, binary.NativeEndian.Uint32(m.Data))
		}
	}
	return n, err
}

// ended checks the last report's counts after the last packet.
func (s *strict) ended() error {
	if s.reports < 2 || s.told.packets != s.packets || s.open {
		return fmt.Errorf("%d packets, a frame is open: %t; the last of %d reports counts %d", s.packets, s.open, s.reports, s.told.packets)
	}
	return nil
}

// rtp checks a packet by RFC 3550 §5.1 and RFC 4175 §4.
func (s *strict) rtp(p []byte) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("packet %d, % x: %s", s.packets, p[:min(len(p), 20)], fmt.Sprintf(format, a...))
	}
	if len(p) < 14 || p[0] != 0x80 || p[1]&0x7f != 96 {
		return bad("want version 2, no padding, no extension, no contributors, payload type 96")
	}
	marker := p[1]>>7 == 1
	number := uint32(binary.BigEndian.Uint16(p[12:]))<<16 | uint32(binary.BigEndian.Uint16(p[2:]))
	stamp, ssrc := binary.BigEndian.Uint32(p[4:]), binary.BigEndian.Uint32(p[8:])
	if s.packets == 0 {
		s.ssrc, s.next, s.first, s.stamp = ssrc, number, stamp, stamp-s.ticks
	}
	switch {
	case ssrc != s.ssrc:
		return bad("the SSRC was %#x", s.ssrc)
	case number != s.next:
		return bad("extended sequence number %d, want %d", number, s.next)
	case s.open && stamp != s.stamp:
		return bad("a timestamp within a frame changes, it was %d", s.stamp)
	case !s.open && !s.begins(stamp):
		return bad("a frame's timestamp is %d after the one before, want multiples of %d", int32(stamp-s.stamp), s.ticks)
	}
	s.packets, s.next, s.open, s.stamp = s.packets+1, s.next+1, true, stamp
	s.octets = append(s.octets, s.octets[len(s.octets)-1]+uint32(len(p)-12))
	if err := s.lines(p[14:]); err != nil {
		return bad("%v", err)
	}
	if whole := s.line == s.height; marker != whole {
		return bad("marker %t, and the next line is %d", marker, s.line)
	}
	if marker {
		s.frames = append(s.frames, s.picture)
		s.open, s.line, s.picture = false, 0, 0
		if age := s.age(); s.reports > 0 && (age < 0 || age > 5*time.Second) { // it may have waited in the socket
			return bad("its frame began %v ago, by the reports", age)
		}
	}
	return s.count()
}

// begins checks the timestamp of a frame. A deviation of a tick is rounding. The mapping of the FPGA's clock is updated
// now and then, which may add some more. The sum must stay bounded.
func (s *strict) begins(stamp uint32) bool {
	const some = 20
	n := (stamp - s.stamp + s.ticks/2) / s.ticks
	s.periods += n
	off, all := int32(stamp-s.stamp-n*s.ticks), int32(stamp-s.first-(s.periods-1)*s.ticks)
	return n > 0 && n < 1000 && max(off, -off) <= some && max(all, -all) <= some+int32(s.periods)/10
}

// lines checks the line segments in a payload, from the first length on (RFC 4175 §4.1, §4.2).
func (s *strict) lines(p []byte) error {
	type segment struct{ length, line, pixel int }
	var list []segment
	for more := true; more; {
		if len(p) < 6 {
			return errors.New("a header of a line is cut")
		}
		if p[2]>>7 != 0 {
			return errors.New("field 1 of a progressive picture")
		}
		more = p[4]>>7 == 1
		list = append(list, segment{
			int(binary.BigEndian.Uint16(p)), int(binary.BigEndian.Uint16(p[2:]) & 0x7fff), int(binary.BigEndian.Uint16(p[4:]) & 0x7fff),
		})
		p = p[6:]
	}
	for _, g := range list {
		const group, pixels = 4, 2 // UYVY, §4.3
		switch {
		case g.length == 0 || g.length%group != 0 || g.length > len(p):
			return fmt.Errorf("length %d, there are %d bytes", g.length, len(p))
		case g.line != s.line || g.pixel != s.pixel:
			return fmt.Errorf("line %d, pixel %d; want %d, %d", g.line, g.pixel, s.line, s.pixel)
		case g.pixel+g.length/group*pixels > s.width:
			return fmt.Errorf("%d bytes from pixel %d on are more than a line", g.length, g.pixel)
		}
		s.picture, p = crc32.Update(s.picture, castagnoli, p[:g.length]), p[g.length:]
		if s.pixel += g.length / group * pixels; s.pixel == s.width {
			s.line, s.pixel = s.line+1, 0
		}
	}
	if len(p) > 0 {
		return fmt.Errorf("%d bytes are left", len(p))
	}
	return nil
}
