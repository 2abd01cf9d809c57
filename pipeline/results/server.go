// SPDX-License-Identifier: Apache-2.0

package results

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/accept"
	"github.com/tegracast/tegracast/pipeline/flood"
	"github.com/tegracast/tegracast/pipeline/guesses"
)

const (
	maxClients   = 32
	maxOfAddress = 24               // clients at one address of another machine, or in one IPv6 network of 64 bits
	backlog      = 64               // lines that may wait for a client
	patience     = 10 * time.Second // time limit for a client to accept a line
	sayBurst     = 10               // pieces of at most 4 KiB read before a client is slowed down
	sayEvery     = 50 * time.Millisecond
)

// server sends lines to TCP clients. Each has a bounded backlog, so a slow client loses lines and delays nobody else.
type server struct {
	listener net.Listener
	log      *slog.Logger
	running  sync.WaitGroup

	mu      sync.Mutex
	clients map[*client]struct{} // nil after close
	dropped uint64
	refused pipeline.FaultLog
}

type client struct {
	conn  net.Conn
	from  netip.Addr
	lines chan []byte // closed by server.giveUp or server.close
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
	for loop := accept.From(s.listener.Accept, s.log); ; {
		conn, err := loop.Next()
		if err != nil {
			return
		}
		s.add(conn)
	}
}

func (s *server) add(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := guesses.Site(conn.RemoteAddr().String())
	if s.clients == nil || len(s.clients) == maxClients || s.of(from) == maxOfAddress {
		if left, due := s.refused.Due("", time.Now()); due {
			s.log.Warn("results: client refused", pipeline.Unlogged([]any{
				"client", conn.RemoteAddr(), "clients", len(s.clients), "most", maxClients, "most of an address", maxOfAddress,
			}, left)...)
		}
		_ = conn.Close()
		return
	}
	c := &client{conn: conn, from: from, lines: make(chan []byte, backlog)}
	s.clients[c] = struct{}{}
	s.running.Go(func() { s.serve(c) })
	s.running.Go(func() { s.listen(c) })
}

// of returns the number of connected clients whose address or network (see guesses.Site) equals from, or 0 if from is a
// loopback address. s.mu must be held.
func (s *server) of(from netip.Addr) (n int) {
	for c := range s.clients {
		if c.from == from && !from.IsLoopback() {
			n++
		}
	}
	return n
}

// serve writes a client's lines to it until a write fails, or giveUp or close ends them.
func (s *server) serve(c *client) {
	defer c.conn.Close()
	for line := range c.lines { // ends: giveUp or close closes it
		_ = c.conn.SetWriteDeadline(time.Now().Add(patience))
		if _, err := c.conn.Write(line); err != nil {
			s.giveUp(c)
			return
		}
	}
}

// listen notices when a client disconnects. It discards what the client sends, and slows down one that sends a lot.
func (s *server) listen(c *client) {
	limit := flood.Limit{Burst: sayBurst, Every: sayEvery}
	for b := make([]byte, 4096); ; {
		if _, err := c.conn.Read(b); err != nil {
			break
		}
		time.Sleep(limit.Pause(time.Now()))
	}
	s.giveUp(c)
}

// giveUp removes a client and closes its lines, unless that was done before.
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

// send queues a line for every client that has room for it.
func (s *server) send(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.clients) == 0 {
		return
	}
	line = bytes.Clone(line) // shared by the clients' writers
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

// close disconnects all clients. Lines that are still queued may be lost.
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
