// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRunning means that Run was called more than once.
var ErrRunning = errors.New("the server was run already: make a new one")

// Server presents one function to one client at a time. After a client has disconnected, the next one may connect, as
// if the function were unplugged and plugged in again. The function keeps its state; the client's mappings and eventfds
// are released.
type Server struct {
	f        Function
	memory   *Memory
	irqs     *interrupts
	listener *net.UnixListener
	handle   int // the socket's file, opened with O_PATH, since it has no name
	refusals chan Refusal
	aborted  atomic.Bool // a read was refused since the last check of the configuration space
	books    serverBooks
	ended    chan struct{} // closed when Run has returned

	mu      sync.Mutex
	ran     bool
	closing bool
	conn    *net.UnixConn // of the client

	config *configSpace // used only by the goroutine that serves
}

// New returns a server whose socket is ready for a client. f does its DMA through memory. The caller must call Run or
// Close. An error wraps ErrFunction if f is invalid.
func New(f Function, memory *Memory) (*Server, error) {
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("vfio-user: %w", err)
	}
	s := &Server{f: f, memory: memory, refusals: make(chan Refusal, lastRefusals), ended: make(chan struct{})}
	s.config, s.irqs = newConfigSpace(&s.f), newInterrupts(&s.f)
	memory.refused = s.noteRefusal
	if err := s.listen(); err != nil {
		return nil, fmt.Errorf("vfio-user: socket: %w", err)
	}
	return s, nil
}

// listen opens a socket without a name. QEMU finds it as a descriptor of this process.
func (s *Server) listen() error {
	dir, err := os.MkdirTemp("", "vfio-user-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	s.handle, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		l.Close()
		return err
	}
	s.listener = l
	return nil
}

// Path returns the socket's path for QEMU's -device. It is valid until the server is closed:
//
//	{"driver":"vfio-user-pci","bus":"slot0","socket":{"type":"unix","path":PATH}}
func (s *Server) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.handle) }

// Raise sends the message of an interrupt vector. If the client uses the line, Raise instead signals the line, provided
// that it is asserted and neither masked nor disabled. A message without a receiver is kept until there is one.
func (s *Server) Raise(vector int) { s.irqs.raise(vector) }

// Run serves clients one after the other. It closes the server and returns nil when ctx ends or Close is called, or an
// error if the socket fails. Another call only returns an error that wraps ErrRunning.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.ran {
		s.mu.Unlock()
		return fmt.Errorf("vfio-user: %w", ErrRunning)
	}
	s.ran = true
	s.mu.Unlock()
	defer close(s.ended)
	defer s.hangUp()
	defer context.AfterFunc(ctx, s.hangUp)()
	return s.serve()
}

// shortPause is the pause before the server retries to accept a client for lack of descriptors or memory.
const shortPause = 100 * time.Millisecond

func (s *Server) serve() error {
	for {
		c, err := s.listener.AcceptUnix()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, unix.ECONNABORTED):
			continue
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS):
			time.Sleep(shortPause)
			continue
		default:
			return fmt.Errorf("vfio-user: %w", err)
		}
		if !s.setClient(c) {
			c.Close()
			return nil
		}
		s.books.clients.Add(1)
		err = s.session(c)
		s.setClient(nil)
		text := ""
		if err != nil {
			text = err.Error()
		}
		s.books.lastError.Store(&text)
	}
}

// setClient makes c the client, or nil for none, and reports whether the server is still open.
func (s *Server) setClient(c *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = c
	return !s.closing
}

// hangUp closes the socket and the client's connection.
func (s *Server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		s.listener.Close()
		unix.Close(s.handle)
	}
	if s.conn != nil {
		s.conn.Close()
	}
}

// Close closes the socket and the client's connection, and waits until Run, if it was called, has returned. Then all
// mappings and eventfds of the client are released.
func (s *Server) Close() {
	s.hangUp()
	s.mu.Lock()
	ran := s.ran
	s.mu.Unlock()
	if ran {
		<-s.ended
	}
}

// reset resets the function. It keeps mappings and eventfds, which are the client's.
func (s *Server) reset() {
	s.books.resets.Add(1)
	s.aborted.Store(false)
	s.config.bytes = s.config.reset
	s.configured()
	s.irqs.reset()
	if s.f.Reset != nil {
		s.f.Reset()
	}
}

// configured applies the configuration space to the memory and the interrupts.
func (s *Server) configured() {
	command := s.config.command()
	s.memory.setMaster(command&commandMaster != 0 && s.config.awake())
	s.irqs.configure(command&commandIntxOff != 0, s.config.granted())
}

func (s *Server) present() bool { return s.f.Present == nil || s.f.Present() }
