// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/headers"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// session is a stream that a client has set up. It belongs to the connection of its SETUP request and ends with it.
type session struct {
	id      string
	stream  *stream
	conn    *conn
	packets *send.Reader
	group   *group // multicast group to which the packets are sent; nil: they are sent to this client alone
	channel int    // of RTP on the connection; -1 for UDP
	url     string // of the track, at the address that the client wrote
	playing bool
	heard   atomic.Int64 // time of the last RTCP packet by UDP, in ns since 1970
}

// sessionTimeout is the timeout in seconds that clients are told. It is less than idleLimit, because some clients send
// the next request only when the timeout is over.
const sessionTimeout = 25

// name returns the session's name for the log.
func (s *session) name() string {
	if s.group != nil {
		return s.conn.RemoteAddr().String() + " by " + s.group.address.String()
	}
	return s.packets.Stats().Address
}

// header returns the value of the Session header.
func (s *session) header() string { return fmt.Sprintf("%s;timeout=%d", s.id, sessionTimeout) }

// firstFrame limits the time for which the answer to PLAY waits for the first frame, to tell its sequence number and
// timestamp.
const firstFrame = 500 * time.Millisecond

// begin begins to send packets, and sends the answer to PLAY: over TCP before the first packet. If it fails, the answer
// has not been sent completely.
func (s *session) begin(answer func(send.First, bool) []byte) error {
	if s.channel >= 0 {
		return s.packets.BeginAfter(s.conn.server.config.first, answer)
	}
	begin := s.packets.Begin
	if s.group != nil {
		begin = func() error { return s.conn.server.groups.startGroup(s.group) }
	}
	if err := begin(); err != nil {
		return err
	}
	_, err := s.conn.Write(answer(s.packets.First(s.conn.server.config.first)))
	return err
}

func (s *session) close() error {
	if s.group != nil {
		return s.conn.server.groups.leave(s.group)
	}
	return s.packets.Close()
}

var errTransport = errors.New("it asks for no transport that can be used: RTP over UDP to an even port, with RTCP at the next one, or over TCP")

// transports returns those of the transports in a Transport header that a server could use, in order. Others are
// skipped (RFC 2326 §12.39).
func transports(values []string) (list []headers.Transport) {
	for _, spec := range strings.Split(strings.Join(values, ","), ",") {
		var t headers.Transport
		if t.Unmarshal(base.HeaderValue{strings.TrimSpace(spec)}) != nil || t.Profile != headers.TransportProfileAVP ||
			t.Mode != nil && *t.Mode != headers.TransportModePlay {
			continue
		}
		if isMulticast(t) || t.Protocol == headers.TransportProtocolTCP || t.ClientPorts != nil {
			list = append(list, t)
		}
	}
	return list
}

func isMulticast(t headers.Transport) bool {
	return t.Protocol == headers.TransportProtocolUDP && t.Delivery != nil && *t.Delivery == headers.TransportDeliveryMulticast
}

// open opens the sockets of a new session by the first transport that can be used, and returns that transport for the
// answer.
func (c *conn) open(st *stream, values []string) (*session, headers.Transport, error) {
	err := errTransport
	for _, t := range transports(values) {
		s := &session{id: strings.ToLower(rand.Text()), stream: st, conn: c, channel: -1}
		var used headers.Transport
		switch {
		case isMulticast(t):
			used, err = s.openGroup()
		case t.Protocol == headers.TransportProtocolTCP:
			used, err = s.openTCP(t)
		default:
			used, err = s.openUDP(t)
		}
		if err == nil {
			ssrc := s.packets.SSRC()
			used.SSRC = &ssrc
			return s, used, nil
		}
	}
	return nil, headers.Transport{}, err
}

func (s *session) openTCP(t headers.Transport) (used headers.Transport, err error) {
	s.channel = 0
	if t.InterleavedIDs != nil {
		s.channel = t.InterleavedIDs[0]
	}
	if s.channel > 254 {
		return used, errTransport
	}
	s.packets = s.stream.sink.ReaderOn(s.conn.Conn, byte(s.channel))
	unicast := headers.TransportDeliveryUnicast
	return headers.Transport{
		Protocol: headers.TransportProtocolTCP, Delivery: &unicast, InterleavedIDs: &[2]int{s.channel, s.channel + 1},
	}, nil
}

func (s *session) openUDP(t headers.Transport) (used headers.Transport, err error) {
	ports := t.ClientPorts
	if ports[0] <= 0 || ports[0] > 65534 || ports[0]%2 != 0 || ports[1] != ports[0]+1 {
		return used, errTransport
	}
	remote := s.conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	heard := func(netip.Addr) { s.heard.Store(time.Now().UnixNano()) }
	if s.packets, err = s.stream.sink.ReaderTo(netip.AddrPortFrom(remote, uint16(ports[0])), heard); err != nil {
		return used, err
	}
	rtp, rtcp := s.packets.Ports()
	unicast := headers.TransportDeliveryUnicast
	return headers.Transport{Delivery: &unicast, ClientPorts: ports, ServerPorts: &[2]int{rtp, rtcp}}, nil
}

func (s *session) openGroup() (used headers.Transport, err error) {
	if s.group, err = s.conn.server.groups.join(s.stream, localAddress(s.conn), s.conn.server.heardFrom); err != nil {
		return used, err
	}
	s.packets = s.group.packets
	return s.group.transport(), nil
}

// localAddress returns this machine's address to which a client has connected.
func localAddress(c net.Conn) netip.Addr {
	return c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}
