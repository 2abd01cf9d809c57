// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline/guesses"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// control is the URL of a stream's only track, relative to Content-Base.
const control = "trackID=0"

// public lists the methods that are served, for the Public and Allow headers.
const public = "OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, TEARDOWN, GET_PARAMETER, SET_PARAMETER"

// respond returns the answer to a request for the stream called name, or nil if the answer has already been written. If
// the method needs a session, the client must have one.
func (c *conn) respond(r *request, name string) *base.Response {
	switch base.Method(r.method) {
	case base.Options:
		return status(base.StatusOK, "Public", public)
	case base.Describe:
		return c.describe(r, name)
	case base.Setup:
		return c.setUp(r, name)
	case base.Play:
		return c.play(r, name)
	case base.Pause:
		return c.pause(name)
	case base.Teardown:
		return c.tearDown(name)
	case base.GetParameter, base.SetParameter:
		return keep(r)
	}
	return status(base.StatusNotImplemented, "Allow", public)
}

// status returns an answer with headers, given as names and values.
func status(code base.StatusCode, header ...string) *base.Response {
	res := &base.Response{StatusCode: code, Header: base.Header{}}
	for i := 0; i < len(header); i += 2 {
		res.Header[header[i]] = append(res.Header[header[i]], header[i+1])
	}
	return res
}

// serve answers the requests of the connection until the connection ends, then ends its session and closes it.
func (c *conn) serve() {
	err := c.answerAll()
	if c.Stalled() {
		err = errors.New("it accepted no data for too long")
	}
	c.endSession(err)
	_ = c.Close()
}

// answerAll answers requests until the connection ends or must be closed, and returns the reason.
func (c *conn) answerAll() error {
	for {
		_ = c.SetReadDeadline(time.Now().Add(c.server.config.idle))
		if err := c.messages.wait(); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && c.session != nil && time.Since(time.Unix(0, c.session.heard.Load())) < c.server.config.idle {
				continue
			}
			return err
		}
		r, f, err := c.messages.next()
		switch {
		case errors.Is(err, errHTTP):
			_, _ = c.Write([]byte("HTTP/1.0 501 Not Implemented\r\nConnection: close\r\n\r\n"))
			return err
		case errors.Is(err, errTooLong):
			c.write(nil, status(base.StatusRequestEntityTooLarge))
			return err
		case errors.Is(err, errMalformed):
			c.write(nil, status(base.StatusBadRequest))
			return err
		case err != nil:
			return err
		case f != nil:
			c.hear()
			c.receive(f)
		case r == nil: // a response
			c.hear()
		default:
			c.server.listener.heard(c)
			c.hear()
			if res := c.answer(r); res != nil {
				c.write(r, res)
			}
		}
	}
}

// receive handles a packet that the client sent on a channel. It ignores all packets but those on the session's channel
// for RTCP.
func (c *conn) receive(f *frame) {
	s := c.session
	if s == nil || s.channel < 0 || int(f.channel) != s.channel+1 {
		return
	}
	packets, err := rtcp.Unmarshal(f.packet)
	if err != nil {
		return
	}
	for _, p := range packets {
		s.packets.Hear(p)
	}
}

// write writes the answer to r, which is nil if it could not be read.
func (c *conn) write(r *request, res *base.Response) { _, _ = c.Write(encode(r, res)) }

func encode(r *request, res *base.Response) []byte {
	res.Header["Server"] = base.HeaderValue{"tegracast"}
	if r != nil && r.header.Get("CSeq") != "" {
		res.Header["CSeq"] = base.HeaderValue{r.header.Get("CSeq")}
	}
	b, _ := res.Marshal() // never fails
	return b
}

// answer returns the answer to a request, or nil if it has been written.
func (c *conn) answer(r *request) *base.Response {
	u, err := url.Parse(r.target)
	all := r.target == "*"
	required := append(r.header.Values("Require"), r.header.Values("Proxy-Require")...)
	switch {
	case r.version != "RTSP/1.0":
		return status(base.StatusRTSPVersionNotSupported)
	case r.header.Get("CSeq") == "" || err != nil || !all && u.Scheme != "rtsp" && u.Scheme != "rtspu":
		return status(base.StatusBadRequest)
	case len(required) > 0:
		return status(base.StatusOptionNotSupported, "Unsupported", strings.Join(required, ", "))
	}
	method := base.Method(r.method)
	id, _, _ := strings.Cut(r.header.Get("Session"), ";")
	id = strings.TrimSpace(id)
	needed := method == base.Play || method == base.Pause || method == base.Teardown
	switch {
	case (needed || id != "") && (c.session == nil || id != c.session.id):
		return status(base.StatusSessionNotFound)
	case all && (needed || method == base.Describe || method == base.Setup):
		return status(base.StatusBadRequest)
	}
	res := c.respond(r, streamName(u))
	if res != nil && id != "" && c.session != nil {
		res.Header["Session"] = base.HeaderValue{c.session.header()}
	}
	return res
}

// streamName returns the name of the stream that a URL denotes, in all methods: its path without slashes around it,
// without a query, and without the track, which some clients write after the query.
func streamName(u *url.URL) string {
	path := strings.Trim(u.Path, "/")
	path = strings.TrimSuffix(path, control)
	return strings.Trim(path, "/")
}

// admit checks the password, if one is required. It returns nil, or the answer to a client that has not sent the right
// one or has guessed too often.
func (c *conn) admit(r *request, name string) (refusal *base.Response) {
	h := &c.server.config
	if h.User == "" {
		return nil
	}
	client, now := guesses.Of(c), time.Now()
	if wait := h.Guesses.Wait(client, now); wait > 0 {
		return status(base.StatusServiceUnavailable, "Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	}
	names := func(uri string) bool {
		u, err := url.Parse(uri)
		return err == nil && streamName(u) == name
	}
	v := c.digest.check(r.header.Get("Authorization"), r.method, h.User, h.Password, names)
	switch v {
	case rightCredentials:
		return nil
	case wrongCredentials:
		h.Guesses.Failed(client, "rtsp", now, h.Logger)
	}
	res := status(base.StatusUnauthorized)
	res.Header["WWW-Authenticate"] = c.digest.challenges(v == staleCredentials)
	return res
}

func (c *conn) describe(r *request, name string) *base.Response {
	if refusal := c.admit(r, name); refusal != nil {
		return refusal
	}
	st := c.server.find(name)
	if st == nil {
		return status(base.StatusNotFound)
	}
	if accept := strings.ToLower(strings.Join(r.header.Values("Accept"), ",")); accept != "" &&
		!strings.Contains(accept, "application/sdp") && !strings.Contains(accept, "application/*") && !strings.Contains(accept, "*/*") {
		return status(base.StatusNotAcceptable)
	}
	text, err := st.sink.Session(localAddress(c), control)
	if err != nil {
		c.server.config.Logger.Error("rtsp: a stream cannot be described", "output", st.name, "error", err)
		return status(base.StatusInternalServerError)
	}
	res := status(base.StatusOK, "Content-Base", contentBase(r.target), "Content-Type", "application/sdp")
	res.Body = text
	return res
}

// contentBase returns the URL to which the control attributes of a description are relative (RFC 2326 §C.1.1): without a
// query, which would take the place of the last part of the path (RFC 3986 §5.2), with one slash at the end, and without
// the user's name and password.
func contentBase(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return target
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/" + streamName(u) + "/"}).String()
}

// setUp answers SETUP. A session that is not playing is replaced: ffmpeg changes from UDP to TCP by PAUSE and another
// SETUP.
func (c *conn) setUp(r *request, name string) *base.Response {
	if refusal := c.admit(r, name); refusal != nil {
		return refusal
	}
	st := c.server.find(name)
	switch {
	case st == nil:
		return status(base.StatusNotFound)
	case c.session != nil && c.session.playing:
		return status(base.StatusMethodNotValidInThisState, "Allow", public)
	}
	s, t, err := c.open(st, r.header.Values("Transport"))
	if err != nil {
		c.server.visits.Warn("rtsp: a reader is refused", "output", st.name, "reader", c.RemoteAddr(), "error", err)
		return status(base.StatusUnsupportedTransport)
	}
	c.endSession(errors.New("it has set up another session"))
	if refusal := c.server.add(s); refusal != 0 {
		if err := s.close(); err != nil {
			c.server.visits.Warn("rtsp: the sockets of a reader were closed with errors", "reader", s.name(), "error", err)
		}
		return status(refusal)
	}
	s.url = contentBase(r.target) + control
	c.session = s
	c.reads.Store(true)
	return status(base.StatusOK, "Transport", t.Marshal()[0], "Session", s.header())
}

// play answers PLAY. The stream is live, so every range is answered as one that starts now. Over TCP the first packet
// follows the answer; over UDP it may overtake the answer.
func (c *conn) play(r *request, name string) *base.Response {
	if refusal := c.refuse(r, name); refusal != nil {
		return refusal
	}
	s := c.session
	res := status(base.StatusOK, "Range", "npt=now-", "Session", s.header())
	if r.header.Get("Scale") != "" {
		res.Header["Scale"] = base.HeaderValue{"1"}
	}
	if s.playing {
		return res
	}
	answer := func(first send.First, known bool) []byte {
		if known {
			res.Header["RTP-Info"] = base.HeaderValue{fmt.Sprintf("url=%s;seq=%d;rtptime=%d", s.url, first.Sequence, first.Timestamp)}
		}
		return encode(r, res)
	}
	if err := s.begin(answer); err != nil {
		c.server.visits.Warn("rtsp: a reader is refused", "output", s.stream.name, "reader", c.RemoteAddr(), "error", err)
		c.endSession(err)
		return status(base.StatusServiceUnavailable)
	}
	s.playing = true
	c.server.visits.Info("rtsp: a reader begins", "output", s.stream.name, "reader", s.name())
	return nil
}

// refuse returns the answer to a request for the session that lacks the password or is for another stream, or nil.
func (c *conn) refuse(r *request, name string) *base.Response {
	if refusal := c.admit(r, name); refusal != nil {
		return refusal
	}
	if name != c.session.stream.name {
		return status(base.StatusNotFound)
	}
	return nil
}

// pause answers PAUSE. The packets of a group are not stopped, because others may read it.
func (c *conn) pause(name string) *base.Response {
	s := c.session
	switch {
	case name != s.stream.name:
		return status(base.StatusNotFound)
	case s.group != nil:
		return status(base.StatusMethodNotAllowed, "Allow", strings.Replace(public, "PAUSE, ", "", 1))
	case s.playing:
		s.packets.Pause()
		s.playing = false
	}
	return status(base.StatusOK)
}

// tearDown answers TEARDOWN. No packet follows the answer.
func (c *conn) tearDown(name string) *base.Response {
	if name != c.session.stream.name {
		return status(base.StatusNotFound)
	}
	c.endSession(errors.New("it has said so"))
	return status(base.StatusOK)
}

// keep answers GET_PARAMETER and SET_PARAMETER, which clients send without parameters to keep their session.
func keep(r *request) *base.Response {
	if names := strings.TrimSpace(r.body); names != "" {
		res := status(base.StatusParameterNotUnderstood, "Content-Type", "text/parameters")
		res.Body = []byte(names + "\r\n")
		return res
	}
	return status(base.StatusOK)
}

// endSession ends the session, if there is one, and releases its resources.
func (c *conn) endSession(why error) {
	s := c.session
	if s == nil {
		return
	}
	c.session = nil
	c.server.remove(s)
	c.reads.Store(false)
	st, name := s.packets.Stats(), s.name()
	if err := s.close(); err != nil {
		c.server.visits.Warn("rtsp: the sockets of a reader were closed with errors", "reader", name, "error", err)
	}
	c.server.visits.Info("rtsp: a reader has left",
		"output", s.stream.name, "reader", name, "frames", st.Frames, "lost", st.Cut, "reason", why)
}
