// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"bufio"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"

	"github.com/tegracast/tegracast/pipeline/accept"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// conn is a client's connection, on which trains may stand between the answers.
type conn struct {
	*send.Conn
	then      func() // behind the next answer; nil: nothing
	close     func() // once
	multicast bool   // the last SETUP has asked for it
}

// Write writes an answer.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if then := c.then; then != nil && err == nil {
		c.then = nil
		then()
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.close()
	return c.Conn.Close()
}

// listener bounds the connections.
type listener struct {
	net.Listener
	log            *slog.Logger
	open, refusing atomic.Int32
}

const (
	maxRefusing = 64          // clients that are told at a time that there is no room; others are closed at once
	refuseTime  = time.Second // for such a client to ask, and to take the answer
)

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := accept.Next(l.Listener.Accept, l.log) // an error ends the server
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) > maxConnections {
			l.open.Add(-1)
			l.refuse(c)
			continue
		}
		wire, err := send.NewConn(c.(*net.TCPConn))
		if err != nil {
			l.open.Add(-1)
			_ = c.Close()
			continue
		}
		return &conn{Conn: wire, close: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
	}
}

// refuse answers the first request of a client with 503.
func (l *listener) refuse(c net.Conn) {
	if l.refusing.Add(1) > maxRefusing {
		l.refusing.Add(-1)
		_ = c.Close()
		return
	}
	go func() {
		defer l.refusing.Add(-1)
		defer c.Close()
		var asked base.Request
		if c.SetDeadline(time.Now().Add(refuseTime)) != nil || asked.Unmarshal(bufio.NewReader(c)) != nil {
			return
		}
		answer := base.Response{
			StatusCode: base.StatusServiceUnavailable,
			Header:     base.Header{"CSeq": asked.Header["CSeq"], "Retry-After": {"10"}},
		}
		if b, err := answer.Marshal(); err == nil {
			_, _ = c.Write(b)
		}
	}()
}
