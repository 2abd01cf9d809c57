// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Limits on the data from a NATS server. The library has none: it panics if the length of a message overflows its sums,
// and stores any shorter message.
const (
	mostLine = 1 << 20 // bytes of a line of the protocol
	mostSaid = 8 << 20 // bytes of a message
)

var errBeyond = errors.New("the server exceeds a limit")

// A natsConn is the connection from which the library reads. Data beyond the limits end it before the library sees
// them.
type natsConn struct {
	net.Conn
	first []byte // data read before the library reads
	line  []byte // the beginning of a line whose end has not arrived
	data  int    // bytes of a message that follow
}

// Read implements net.Conn.
func (c *natsConn) Read(b []byte) (n int, err error) {
	if n = copy(b, c.first); n > 0 {
		c.first = c.first[n:]
	} else if n, err = c.Conn.Read(b); err != nil {
		return n, err
	}
	return n, c.follow(b[:n])
}

// follow parses the data that have arrived.
func (c *natsConn) follow(b []byte) error {
	for len(b) > 0 {
		if passed := min(c.data, len(b)); passed > 0 {
			c.data -= passed
			b = b[passed:]
			continue
		}
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if len(c.line)+len(line) > mostLine {
			return fmt.Errorf("%w: a line of more than %d bytes", errBeyond, mostLine)
		}
		if b = rest; !whole {
			c.line = append(c.line, line...)
			return nil
		}
		if len(c.line) > 0 {
			line = append(c.line, line...)
		}
		err := c.message(line)
		if c.line = c.line[:0]; err != nil {
			return err
		}
	}
	return nil
}

// message makes follow skip the data of the message that a line announces, if it is an MSG or HMSG line
// (https://docs.nats.io/reference/reference-protocols/nats-protocol). It parses the line as the library does, and
// returns an error if the library could parse it differently.
func (c *natsConn) message(line []byte) error {
	line = bytes.TrimSuffix(line, []byte("\r"))
	f := bytes.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(f) == 0 || !bytes.EqualFold(f[0], []byte("MSG")) && !bytes.EqualFold(f[0], []byte("HMSG")) {
		return nil
	}
	length := f[len(f)-1]
	n, err := strconv.ParseUint(string(length), 10, 31)
	if err != nil || n > mostSaid || bytes.IndexByte(line, '\r') >= 0 {
		return fmt.Errorf("%w: a message of %q bytes", errBeyond, length)
	}
	c.data = int(n) + len("\r\n")
	return nil
}

// greeted reads the server's first line from a connection, and encrypts the connection if the URL or that line requires
// it. It returns the connection for the library, and whether it is encrypted.
func (s *Server) greeted(ctx context.Context, plain net.Conn) (c *natsConn, encrypted bool, err error) {
	_ = plain.SetReadDeadline(time.Now().Add(dialTime / 2))                          // a connection that is closed fails below
	defer context.AfterFunc(ctx, func() { _ = plain.SetReadDeadline(time.Now()) })() // no longer waits for the server
	first, err := firstLine(plain)
	if err != nil {
		return nil, false, err
	}
	var info struct {
		Required  bool `json:"tls_required"`
		Available bool `json:"tls_available"`
	}
	text, _ := bytes.CutPrefix(first, []byte("INFO "))
	_ = json.Unmarshal(text, &info) // the library reports mistakes in it
	_, address := s.address()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, false, err
	}
	secure, err := s.tls(host)
	if err != nil {
		return nil, false, err
	}
	if secure == nil && info.Required {
		secure = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	}
	c = &natsConn{Conn: plain, first: first}
	if secure != nil && (info.Required || info.Available) { // else the library refuses the server
		over := tls.Client(plain, secure)
		if err := over.HandshakeContext(ctx); err != nil {
			return nil, false, fmt.Errorf("nats: tls error: %w", err)
		}
		c.Conn, encrypted = over, true
	}
	return c, encrypted, plain.SetReadDeadline(time.Time{})
}

// firstLine reads one line. It also returns an error if the line is too long or the server sends more before it gets an
// answer.
func firstLine(c net.Conn) (line []byte, err error) {
	for b := make([]byte, 4096); ; {
		n, err := c.Read(b)
		if err != nil {
			return nil, err
		}
		line = append(line, b[:n]...)
		switch end := bytes.IndexByte(line, '\n'); {
		case end == len(line)-1:
			return line, nil
		case end >= 0 || len(line) > mostLine: // the server must wait for an answer
			return nil, fmt.Errorf("%w: %d bytes before the first request", errBeyond, len(line))
		}
	}
}
