// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

// ServerConfig describes a server.
type ServerConfig struct {
	Listen string       // IP address and port, such as 0.0.0.0:5020 or [::]:5020
	Logger *slog.Logger // nil: slog.Default()
}

// A Server listens for receivers of its streams.
type Server struct {
	hub     *hub
	log     *slog.Logger
	address netip.AddrPort
	worker  *ucx.Worker
	cancel  context.CancelFunc
	running sync.WaitGroup
	devices atomic.Pointer[map[string]bool] // that UCX knows
	refused atomic.Bool                     // somebody has connected by a network device that UCX does not know

	mu       sync.Mutex
	context  *ucx.Context
	sessions map[*ucx.Endpoint]*session
	listener *ucx.Listener // nil: the address is not there yet
}

// CheckAddress refuses what is no address to listen at.
func CheckAddress(listen string) error {
	if _, err := netip.ParseAddrPort(listen); err != nil {
		return fmt.Errorf("%q: write an IP address and a port, such as 0.0.0.0:5020 or [::]:5020", listen)
	}
	return nil
}

// Listen opens a server. Where its address cannot be had now it tries again, and the log says so. An error wraps ucx.ErrNoLibrary when
// there is no UCX.
func Listen(c ServerConfig) (*Server, error) {
	address, err := netip.ParseAddrPort(c.Listen)
	if err != nil {
		return nil, CheckAddress(c.Listen)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := &Server{address: address, log: c.Logger, sessions: map[*ucx.Endpoint]*session{}}
	s.devices.Store(devices())
	if s.context, s.worker, err = openContext(s.receive); err != nil {
		return nil, err
	}
	s.hub = newHub(s.context.Release(), c.Logger)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	failed := s.listen()
	s.running.Go(func() { s.watch(ctx, failed) })
	return s, nil
}

// openContext makes a context with a worker, whose messages go to receive.
func openContext(receive func(*ucx.Message)) (*ucx.Context, *ucx.Worker, error) {
	c, err := ucx.Open(ucx.Config{})
	if err != nil {
		return nil, nil, err
	}
	w, err := c.NewWorker()
	for id := uint16(idHello); id <= lastID && err == nil; id++ {
		err = w.Handle(id, receive)
	}
	if err == nil && w.MaxHeader() < frameHeaderSize {
		err = fmt.Errorf("frames: UCX takes headers of %d bytes, frames need %d: choose other transports (UCX_TLS)", w.MaxHeader(), frameHeaderSize)
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, w, nil
}

// listen takes the address.
func (s *Server) listen() error {
	l, err := s.worker.Listen(s.address, s.accept)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	s.log.Info("ucx: listening", "address", l.Addr(), "ucx", s.hub.release)
	return nil
}

// watch looks after connections, and tries again to listen.
func (s *Server) watch(ctx context.Context, failed error) {
	clock := time.NewTicker(tick)
	defer clock.Stop()
	wait, next := firstWait, time.Now()
	var later time.Time // UCX is opened again not before
	for {
		if now := time.Now(); failed != nil && !now.Before(next) {
			s.log.Warn("ucx: cannot listen, and tries again", "address", s.address, "in", wait, "error", failed)
			next, wait = now.Add(wait), min(2*wait, lastWait)
		}
		select {
		case <-ctx.Done():
			return
		case now := <-clock.C:
			s.hub.check(now)
			if !now.Before(later) && (s.refused.Load() || s.grown()) {
				if err := s.reopen(); err != nil {
					later = now.Add(lastWait)
					s.log.Warn("ucx: a network device has come, for which UCX cannot be opened again yet", "tried again in", lastWait, "error", err)
					continue
				}
				failed = s.listen()
				wait, next = firstWait, now
			} else if failed != nil && !now.Before(next) {
				failed = s.listen()
			}
		}
	}
}

// devices are the network devices that UCX knows when it is opened now.
func devices() *map[string]bool {
	list, _ := net.Interfaces()
	found := map[string]bool{}
	for _, i := range list {
		if usable(i) {
			found[i.Name] = true
		}
	}
	return &found
}

// usable says whether UCX would use a network device: one that is up and has an address. It always knows the loopback.
func usable(i net.Interface) bool {
	if i.Flags&net.FlagRunning == 0 || i.Flags&net.FlagLoopback != 0 {
		return false
	}
	addresses, _ := i.Addrs()
	return slices.ContainsFunc(addresses, func(a net.Addr) bool {
		ip, is := a.(*net.IPNet)
		return is && ip.IP.IsGlobalUnicast()
	})
}

// grown says whether a network device has come that UCX does not know. It asks only for the addresses of those.
func (s *Server) grown() bool {
	list, _ := net.Interfaces()
	known := *s.devices.Load()
	return slices.ContainsFunc(list, func(i net.Interface) bool { return !known[i.Name] && usable(i) })
}

// reopen opens UCX once more, for a network device that has come. Those who are connected connect again, when the
// caller listens again. On an error all is as it was.
func (s *Server) reopen() error {
	known := devices()
	c, w, err := openContext(s.receive)
	if err != nil {
		return err
	}
	s.devices.Store(known)
	s.mu.Lock()
	l := s.listener
	s.listener = nil
	s.mu.Unlock()
	if l != nil {
		err = l.Close()
	}
	s.hub.clear(bye{CodeEnd, "the sender opens UCX again, for a network device that has come"})
	s.mu.Lock()
	old := s.context
	s.context = c
	s.mu.Unlock()
	err = errors.Join(err, s.hub.forget())
	if !s.refused.Swap(false) { // else UCX has left something of that connection, which needs them
		err = errors.Join(err, s.worker.Close(), old.Close())
	}
	s.worker = w
	s.log.Info("ucx: opened again, for a network device that has come", "errors", err)
	return nil
}

// Addr is where the server listens; the zero AddrPort: nowhere so far.
func (s *Server) Addr() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return netip.AddrPort{}
	}
	return s.listener.Addr()
}

// accept takes somebody who connects.
func (s *Server) accept(r *ucx.ConnRequest) {
	// One that comes by a device which UCX does not know cannot be accepted: UCX would leave something of it. It tries again.
	if !s.hub.room() || s.grown() {
		_ = r.Reject()
		return
	}
	var w *session
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := r.Accept(ucx.EndpointOptions{Failed: func(err error) { w.failed(err) }})
	if err != nil {
		if errors.Is(err, ucx.ErrUnreachable) {
			s.refused.Store(true)
		}
		s.log.Warn("ucx: a connection cannot be accepted", "from", r.From(), "error", err)
		return
	}
	if w = s.hub.connected(&endpoint{e, func() { s.forget(e) }}, r.From().String(), time.Now()); w != nil {
		s.sessions[e] = w
	} else {
		w = &session{hub: s.hub, state: over}
		e.Abort()
	}
}

// forget is called when nothing of a connection is left.
func (s *Server) forget(e *ucx.Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, e)
}

// receive hands a message to the session that it is of.
func (s *Server) receive(m *ucx.Message) {
	s.mu.Lock()
	w := s.sessions[m.Endpoint]
	s.mu.Unlock()
	if w == nil {
		return
	}
	in := incoming{id: m.ID, header: m.Header, data: m.Data, length: m.Length}
	if m.Rendezvous {
		in.fetch = func(int, func(int, error)) error { return errWire } // which is refused anyway
	}
	w.receive(in, time.Now())
}

// Stream adds a stream of frames of a format. It is an output of a graph.
func (s *Server) Stream(c StreamConfig, f pipeline.Format) (*Sink, error) {
	return newSink(s.hub, c, f, func(slot []byte) (*ucx.Memory, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.context.Map(unsafe.Pointer(unsafe.SliceData(slot)), len(slot), ucx.Host)
	})
}

// Close ends all connections. The streams must have been closed.
func (s *Server) Close() error {
	s.cancel()
	s.running.Wait()
	var errs []error
	s.mu.Lock()
	l, c := s.listener, s.context
	s.mu.Unlock()
	if l != nil {
		errs = append(errs, l.Close())
	}
	s.hub.close()
	return errors.Join(append(errs, s.worker.Close(), c.Close())...)
}

// An endpoint is a link by UCX.
type endpoint struct {
	to   *ucx.Endpoint
	gone func()
}

// Send implements link.
func (e *endpoint) Send(m *ucx.Outgoing, done func(error)) error { return e.to.Send(m, done) }

// end implements link.
func (e *endpoint) end(ended func()) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), linger)
		defer cancel()
		_ = e.to.Close(ctx) // by force in the end; why the connection ended is known
		e.gone()
		ended()
	}()
}
