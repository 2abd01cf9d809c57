// SPDX-License-Identifier: Apache-2.0

package results

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline/accept"
)

const (
	maxClients = 32
	backlog    = 64               // lines that may wait for a client
	patience   = 10 * time.Second // with a client that takes nothing
)

// server gives lines to TCP clients. Each has a bounded backlog: a slow one loses lines, and holds up nobody.
type server struct {
	listener net.Listener
	log      *slog.Logger
	running  sync.WaitGroup

	mu      sync.Mutex
	clients map[*client]struct{} // nil once closed
	dropped uint64
}

type client struct {
	conn  net.Conn
	lines chan []byte // closed when the client has been given up
	lost  uint64      // lines, guarded by the server's lock
}

func newServer(listen string, log *slog.Logger) (*server, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("%w: tcp %q: %w", ErrConfig, listen, err)
	}
	s := &server{listener: l, log: log, clients: map[*client]struct{}{}}
	s.running.Go(s.accept)
	return s, nil
}

func (s *server) accept() {
	for {
		conn, err := accept.Next(s.listener.Accept, s.log)
		if err != nil {
			return
		}
		s.add(conn)
	}
}

func (s *server) add(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients == nil || len(s.clients) == maxClients {
		s.log.Warn("results: client refused", "client", conn.RemoteAddr(), "most", maxClients)
		_ = conn.Close()
		return
	}
	c := &client{conn: conn, lines: make(chan []byte, backlog)}
	s.clients[c] = struct{}{}
	s.running.Go(func() { s.serve(c) })
	s.running.Go(func() { s.listen(c) })
}

// serve writes to a client until it is given up.
func (s *server) serve(c *client) {
	defer c.conn.Close()
	for line := range c.lines { // ends: giveUp closes it
		_ = c.conn.SetWriteDeadline(time.Now().Add(patience))
		if _, err := c.conn.Write(line); err != nil {
			s.giveUp(c)
			return
		}
	}
}

// listen learns that a client has gone. What it says does not matter.
func (s *server) listen(c *client) {
	_, _ = io.Copy(io.Discard, c.conn)
	s.giveUp(c)
}

// giveUp lets the client's lines end.
func (s *server) giveUp(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.clients[c]; !there {
		return
	}
	delete(s.clients, c)
	close(c.lines)
	if c.lost > 0 {
		s.log.Warn("results: a client was too slow and lost lines", "client", c.conn.RemoteAddr(), "lines_lost", c.lost)
	}
}

// send gives a line to every client that has room for it.
func (s *server) send(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.clients) == 0 {
		return
	}
	line = bytes.Clone(line) // the clients' writers share it
	for c := range s.clients {
		select {
		case c.lines <- line:
		default:
			c.lost++
			s.dropped++
		}
	}
}

func (s *server) stats() (clients int, dropped uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients), s.dropped
}

// close lets everybody go. Lines that wait are not sent on.
func (s *server) close() error {
	err := s.listener.Close()
	s.mu.Lock()
	clients := s.clients
	s.clients = nil
	for c := range clients {
		close(c.lines)
		_ = c.conn.SetDeadline(time.Now())
	}
	s.mu.Unlock()
	s.running.Wait()
	return err
}
