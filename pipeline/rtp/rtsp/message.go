// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net/textproto"
	"strconv"
	"strings"
)

const (
	maxMessage = 1 << 14 // bytes of a request with headers and body
	maxHeaders = 64      // different headers of a request
	maxBody    = 1 << 12 // bytes
	maxFrame   = 1 << 17 // more bytes than a packet can have
)

// request is a request of a client (RFC 2326 §6).
type request struct {
	method, target, version string
	header                  textproto.MIMEHeader
	body                    string
}

// frame is a packet that a client sent on a channel of its connection (RFC 2326 §10.12).
type frame struct {
	channel byte
	packet  []byte
}

var (
	errMalformed = errors.New("it sends something that is no RTSP")
	errTooLong   = errors.New("it sends a message that is too long")
	errHTTP      = errors.New("it speaks HTTP")
)

// messages reads the messages of a client.
type messages struct {
	limit io.LimitedReader // what may still be read for the current message
	in    *bufio.Reader
	text  *textproto.Reader
}

func newMessages(from io.Reader) *messages {
	m := &messages{limit: io.LimitedReader{R: from}}
	m.in = bufio.NewReader(&m.limit)
	m.text = textproto.NewReader(m.in)
	return m
}

// wait waits for the next message. After an error of the connection, such as a timeout, it can be called again. Empty
// lines between messages are skipped (RFC 2616 §4.1).
func (m *messages) wait() error {
	for {
		m.limit.N = maxMessage
		b, err := m.in.Peek(1)
		if err != nil || b[0] != '\r' && b[0] != '\n' {
			return err
		}
		_, _ = m.in.Discard(1)
	}
}

// next returns the next message: a request, or a frame. Both are nil for a response, which answers no request of the
// server. It returns errMalformed, errTooLong or errHTTP if the end of the message is unknown, and other errors of the
// connection.
func (m *messages) next() (*request, *frame, error) {
	b, err := m.in.Peek(1)
	if err != nil {
		return nil, nil, err
	}
	if b[0] == '$' {
		f, err := m.frame()
		return nil, f, err
	}
	r, err := m.request()
	if err != nil && m.limit.N <= 0 {
		err = errTooLong
	}
	if err != nil || r.method == "" {
		return nil, nil, err
	}
	return r, nil, nil
}

func (m *messages) frame() (*frame, error) {
	m.limit.N = maxFrame
	var head [4]byte
	if _, err := io.ReadFull(m.in, head[:]); err != nil {
		return nil, err
	}
	f := &frame{channel: head[1], packet: make([]byte, binary.BigEndian.Uint16(head[2:]))}
	_, err := io.ReadFull(m.in, f.packet)
	return f, err
}

// request reads a request or a response. What it returns for a response has no method, target and version. Lines may
// end with LF alone (RFC 2326 §4).
func (m *messages) request() (*request, error) {
	line, err := m.text.ReadLine()
	if err != nil {
		return nil, err
	}
	r := &request{}
	if !strings.HasPrefix(line, "RTSP/") {
		var ok bool
		if r.method, r.target, ok = strings.Cut(line, " "); !ok {
			return nil, errMalformed
		}
		if r.target, r.version, ok = strings.Cut(r.target, " "); !ok || r.method == "" || strings.Contains(r.version, " ") {
			return nil, errMalformed
		}
		switch {
		case strings.HasPrefix(r.version, "HTTP/"):
			return nil, errHTTP
		case !strings.HasPrefix(r.version, "RTSP/"):
			return nil, errMalformed
		}
	}
	r.header, err = m.text.ReadMIMEHeader()
	var malformed textproto.ProtocolError
	switch {
	case errors.As(err, &malformed):
		return nil, errMalformed
	case err != nil:
		return nil, err
	case len(r.header) > maxHeaders:
		return nil, errTooLong
	}
	size := 0
	if text := r.header.Get("Content-Length"); text != "" {
		if size, err = strconv.Atoi(text); err != nil || size < 0 {
			return nil, errMalformed
		}
		if size > maxBody {
			return nil, errTooLong
		}
	}
	body := make([]byte, size)
	_, err = io.ReadFull(m.in, body)
	r.body = string(body)
	return r, err
}
