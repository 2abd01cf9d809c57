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

	"golang.org/x/sys/unix"
)

// ErrRunning says that Run was called a second time.
var ErrRunning = errors.New("the server was run already: make a new one")

// Server shows one function to one client at a time. When the client has gone the next one may come: the machine has
// unplugged the function and plugs it again. What the function is does not change with it; the client's mappings and
// eventfds are given back.
type Server struct {
	f        Function
	memory   *Memory
	irqs     *interrupts
	listener *net.UnixListener
	handle   int // the socket's file, O_PATH: it has no name
	refusals chan Refusal
	aborted  atomic.Bool // a read was refused since the configuration space was looked at
	books    serverBooks
	ended    chan struct{} // closed when Run has returned

	mu      sync.Mutex
	ran     bool
	closing bool
	conn    *net.UnixConn // of the client

	config *configSpace // of the goroutine that serves
}

// New makes a server whose socket is ready for a client. The memory is the one by which f does its DMA. An error wraps
// ErrFunction when f is none.
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

// listen makes a socket without a name: QEMU finds it as a descriptor of this process.
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

// Path is the socket as QEMU's -device takes it, as long as the server is not closed:
//
//	{"driver":"vfio-user-pci","bus":"slot0","socket":{"type":"unix","path":PATH}}
func (s *Server) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.handle) }

// Raise sends the message of an interrupt vector, and says that the line may have risen. A message without a receiver
// waits for one.
func (s *Server) Raise(vector int) { s.irqs.raise(vector) }

// Run serves clients, one after the other, until ctx ends or Close is called, and returns nil then. The server is closed
// when it returns. The second Run fails with ErrRunning.
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

func (s *Server) serve() error {
	for {
		c, err := s.listener.AcceptUnix()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, unix.ECONNABORTED):
			continue
		default:
			return fmt.Errorf("vfio-user: %w", err)
		}
		if !s.take(c) {
			c.Close()
			return nil
		}
		s.books.clients.Add(1)
		err = s.session(c)
		s.take(nil)
		text := ""
		if err != nil {
			text = err.Error()
		}
		s.books.lastError.Store(&text)
	}
}

// take makes c the client, and reports whether there may be one.
func (s *Server) take(c *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = c
	return !s.closing
}

// hangUp ends the socket and the client's connection.
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

// Close ends the client's connection and Run. When it returns nothing of the client is left: no mapping, no eventfd.
func (s *Server) Close() {
	s.hangUp()
	s.mu.Lock()
	ran := s.ran
	s.mu.Unlock()
	if ran {
		<-s.ended
	}
}

// reset puts the function into its reset state. Mappings and eventfds are the client's and stay.
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

// configured follows the configuration space.
func (s *Server) configured() {
	command := s.config.command()
	s.memory.setMaster(command&commandMaster != 0 && s.config.awake())
	s.irqs.configure(command&commandIntxOff != 0, s.config.granted())
}

func (s *Server) present() bool { return s.f.Present == nil || s.f.Present() }
