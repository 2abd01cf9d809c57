// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/headers"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"
	"github.com/pion/rtcp"

	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/tegracast/tegracast/pipeline/guesses"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// handler implements gortsplib's server handlers.
type handler struct{ *Server }

// reader is a session that has been set up.
type reader struct {
	stream  string
	packets *send.Reader
	conn    *conn
	group   *group // the multicast group that it shares with other readers; nil if it uses unicast
}

// name returns the reader's name for the log.
func (r *reader) name() string {
	if r.group != nil {
		return r.conn.RemoteAddr().String() + " by " + r.group.address.String()
	}
	return r.packets.Stats().Address
}

// control is the URL of a stream's only track, in gortsplib's notation.
const control = "trackID=0"

func status(s base.StatusCode) *base.Response { return &base.Response{StatusCode: s} }

// admit checks the password, if one is required. refusal is nil, or the answer to a client that has not sent the right
// one or has guessed too often.
func (h *handler) admit(c *gortsplib.ServerConn, r *base.Request) (refusal *base.Response, err error) {
	if h.config.User == "" {
		return nil, nil
	}
	client, now := guesses.Of(c.NetConn()), time.Now()
	if wait := h.config.Guesses.Wait(client, now); wait > 0 {
		return &base.Response{
			StatusCode: base.StatusServiceUnavailable, Header: base.Header{"Retry-After": {strconv.Itoa(int(wait/time.Second) + 1)}},
		}, nil
	}
	if c.VerifyCredentials(r, h.config.User, h.config.Password) {
		return nil, nil
	}
	if _, said := r.Header["Authorization"]; said {
		h.config.Guesses.Failed(client, "rtsp", now, h.config.Logger)
	}
	return status(base.StatusUnauthorized), liberrors.ErrServerAuth{}
}

// OnDescribe implements gortsplib.ServerHandlerOnDescribe.
func (h *handler) OnDescribe(ctx *gortsplib.ServerHandlerOnDescribeCtx) (*base.Response, *gortsplib.ServerStream, error) {
	if refusal, err := h.admit(ctx.Conn, ctx.Request); refusal != nil {
		return refusal, nil, err
	}
	st := h.find(ctx.Path)
	if st == nil {
		return status(base.StatusNotFound), nil, nil
	}
	from := netip.IPv4Unspecified()
	if c, direct := ctx.Conn.NetConn().(*conn); direct { // not a tunnel through HTTP
		from = localAddress(c)
	}
	text, err := st.sink.Session(from, control)
	if err != nil {
		h.config.Logger.Error("rtsp: a stream cannot be described", "output", st.name, "error", err)
		return status(base.StatusInternalServerError), nil, nil
	}
	return &base.Response{StatusCode: base.StatusOK, Body: text}, nil, nil
}

// OnSetup implements gortsplib.ServerHandlerOnSetup. It opens the reader's sockets.
func (h *handler) OnSetup(ctx *gortsplib.ServerHandlerOnSetupCtx) (*base.Response, *gortsplib.ServerStream, error) {
	if refusal, err := h.admit(ctx.Conn, ctx.Request); refusal != nil {
		return refusal, nil, err
	}
	st := h.find(ctx.Path)
	c, direct := ctx.Conn.NetConn().(*conn)
	h.mu.Lock()
	_, again := h.readers[ctx.Session]
	full := len(h.readers) >= maxReaders
	h.mu.Unlock()
	switch {
	case st == nil:
		return status(base.StatusNotFound), nil, nil
	case again: // there is only one track
		return status(base.StatusMethodNotValidInThisState), nil, nil
	case full:
		return status(base.StatusServiceUnavailable), nil, nil
	case !direct: // a tunnel through HTTP
		return status(base.StatusUnsupportedTransport), nil, nil
	}
	r, err := h.open(st, c, ctx.Transport.Protocol, ctx.Request.Header["Transport"])
	if err != nil {
		h.visits.Warn("rtsp: a reader is refused", "output", st.name, "reader", c.RemoteAddr(), "error", err)
		return status(base.StatusUnsupportedTransport), nil, nil
	}
	h.mu.Lock()
	h.readers[ctx.Session] = r
	h.mu.Unlock()
	c.reads.Store(true)
	return status(base.StatusOK), st.sessions, nil
}

var errTransport = errors.New("it asks for ports, or channels, that cannot be used: RTP's must be even, RTCP takes the next one")

// open returns the reader that a SETUP request asks for.
func (h *handler) open(st *stream, c *conn, p gortsplib.Protocol, header base.HeaderValue) (r *reader, err error) {
	r = &reader{stream: st.name, conn: c}
	if c.multicast {
		if r.group, err = h.groups.join(st, localAddress(c)); err == nil {
			r.packets = r.group.packets
		}
		return r, err
	}
	r.packets, err = open(st.sink, c, p, header)
	return r, err
}

// open opens the sockets of a reader that shares no group.
func open(sink *send.Sink, c *conn, p gortsplib.Protocol, header base.HeaderValue) (*send.Reader, error) {
	var all headers.Transports
	if err := all.Unmarshal(header); err != nil {
		return nil, err
	}
	for _, t := range all { // gortsplib has selected the first one that it supports
		multicast := t.Delivery != nil && *t.Delivery == headers.TransportDeliveryMulticast
		switch {
		case t.Profile != headers.TransportProfileAVP || multicast:
		case p == gortsplib.ProtocolTCP && t.Protocol == headers.TransportProtocolTCP:
			channel := 0
			if t.InterleavedIDs != nil {
				channel = t.InterleavedIDs[0]
			}
			if channel < 0 || channel > 254 {
				return nil, errTransport
			}
			return sink.ReaderOn(c.Conn, byte(channel)), nil
		case p == gortsplib.ProtocolUDP && t.Protocol == headers.TransportProtocolUDP:
			ports := t.ClientPorts
			if ports == nil || ports[0] <= 0 || ports[0] > 65534 || ports[0]%2 != 0 || ports[1] != ports[0]+1 {
				return nil, errTransport
			}
			remote := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			return sink.ReaderTo(netip.AddrPortFrom(remote, uint16(ports[0])))
		}
	}
	return nil, errTransport
}

// OnPlay implements gortsplib.ServerHandlerOnPlay. Packets are sent only after the answer.
func (h *handler) OnPlay(ctx *gortsplib.ServerHandlerOnPlayCtx) (*base.Response, error) {
	if refusal, err := h.admit(ctx.Conn, ctx.Request); refusal != nil {
		return refusal, err
	}
	r := h.reader(ctx.Session)
	c, direct := ctx.Conn.NetConn().(*conn)
	if r == nil || !direct || ctx.Session.State() == gortsplib.ServerSessionStatePlay {
		return status(base.StatusOK), nil
	}
	if ctx.Session.Transport().Protocol == gortsplib.ProtocolTCP {
		if c != r.conn { // its channels belong to another connection
			return status(base.StatusMethodNotValidInThisState), nil
		}
		ctx.Session.OnPacketRTCPAny(func(_ *description.Media, p rtcp.Packet) {
			r.packets.Hear(p)
			c.hear()
		})
	}
	session := ctx.Session
	c.then = func() {
		if err := h.startReader(r); err != nil {
			h.visits.Warn("rtsp: a reader is refused", "output", r.stream, "reader", c.RemoteAddr(), "error", err)
			session.Close()
			return
		}
		h.visits.Info("rtsp: a reader begins", "output", r.stream, "reader", r.name())
	}
	return status(base.StatusOK), nil
}

func (h *handler) startReader(r *reader) error {
	if r.group != nil {
		return h.groups.startGroup(r.group)
	}
	return r.packets.Begin()
}

func (h *handler) endReader(r *reader) error {
	if r.group != nil {
		return h.groups.leave(r.group)
	}
	return r.packets.Close()
}

// contentBase returns the URL to which the control attributes of a description are relative (RFC 2326 §C.1.1): without
// a query, which would take the place of the last part of the path (RFC 3986 §5.2), with one slash at the end, and
// without the user's name and password. If given cannot be parsed, it is returned unchanged.
func contentBase(given string) string {
	u, err := url.Parse(given)
	if err != nil {
		return given
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/" + strings.Trim(u.Path, "/") + "/"}).String()
}

// OnResponse implements gortsplib.ServerHandlerOnResponse. It sets the server's name in every answer. In the answer to
// DESCRIBE it replaces the base URL, and in the answer to SETUP the ports, the SSRC and the group.
func (h *handler) OnResponse(c *gortsplib.ServerConn, res *base.Response) {
	res.Header["Server"] = base.HeaderValue{"tegracast"}
	if from, is := res.Header["Content-Base"]; is && len(from) == 1 {
		res.Header["Content-Base"] = base.HeaderValue{contentBase(from[0])}
	}
	given, is := res.Header["Transport"]
	r := h.reader(c.Session())
	if !is || r == nil {
		return
	}
	var t headers.Transport
	if t.Unmarshal(given) != nil {
		return
	}
	ssrc := r.packets.SSRC()
	if r.group != nil {
		t = r.group.transport()
	}
	t.SSRC = &ssrc
	if t.ServerPorts != nil {
		rtp, rtcp := r.packets.Ports()
		t.ServerPorts = &[2]int{rtp, rtcp}
	}
	res.Header["Transport"] = t.Marshal()
}

// OnSessionClose implements gortsplib.ServerHandlerOnSessionClose. It releases the reader's resources.
func (h *handler) OnSessionClose(ctx *gortsplib.ServerHandlerOnSessionCloseCtx) {
	h.mu.Lock()
	r := h.readers[ctx.Session]
	delete(h.readers, ctx.Session)
	h.mu.Unlock()
	if r == nil {
		return
	}
	r.conn.reads.Store(false)
	st := r.packets.Stats()
	why := ctx.Error
	if r.conn.Stalled() {
		why = errors.New("it accepted no data for too long")
	}
	if err := h.endReader(r); err != nil {
		h.visits.Warn("rtsp: the sockets of a reader were closed with errors", "reader", r.name(), "error", err)
	}
	h.visits.Info("rtsp: a reader has left",
		"output", r.stream, "reader", r.name(), "frames", st.Frames, "lost", st.Cut, "reason", why)
}

// OnConnClose implements gortsplib.ServerHandlerOnConnClose. The session of a UDP reader ends immediately when its
// connection ends.
func (h *handler) OnConnClose(ctx *gortsplib.ServerHandlerOnConnCloseCtx) {
	if s := ctx.Conn.Session(); s != nil {
		s.Close()
	}
}

// OnDecodeError implements gortsplib.ServerHandlerOnDecodeError. Without it gortsplib would print a line on stderr for
// each invalid packet.
func (h *handler) OnDecodeError(*gortsplib.ServerHandlerOnDecodeErrorCtx) {}

// reader returns the reader of a session, or nil.
func (h *handler) reader(s *gortsplib.ServerSession) *reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.readers[s]
}
