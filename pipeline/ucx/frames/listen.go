// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/flood"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

// ServerConfig configures a Server.
type ServerConfig struct {
	Listen string       // IP address and port, such as 0.0.0.0:5020 or [::]:5020
	Logger *slog.Logger // nil: slog.Default()
}

// Limits of accepted connections: a burst, then one per interval.
const (
	comesBurst = 64
	comesEvery = 20 * time.Millisecond
)

// A Server listens for receivers of its streams.
type Server struct {
	hub     *hub
	log     *slog.Logger
	address netip.AddrPort
	cancel  context.CancelFunc
	running sync.WaitGroup
	devices atomic.Pointer[map[string]bool] // names of the network devices known to UCX
	comes   flood.Limit                     // limits connections: each costs a scan of the network devices, and log lines
	refused atomic.Bool                     // a connection arrived through a network device that UCX does not know

	mu       sync.Mutex
	context  *ucx.Context
	worker   *ucx.Worker // watch alone changes it
	sessions map[*ucx.Endpoint]*session
	listener *ucx.Listener // nil while the server does not listen

	unguarded bool // it was logged that the kernel does not filter clients
}

// CheckAddress returns an error unless listen is an IP address and a port.
func CheckAddress(listen string) error {
	if _, err := netip.ParseAddrPort(listen); err != nil {
		return fmt.Errorf("%q: write an IP address and a port, such as 0.0.0.0:5020 or [::]:5020", listen)
	}
	return nil
}

// Listen opens a server. If its address is not available, the server logs that and tries again. The error wraps
// ucx.ErrNoLibrary if UCX is not available. The caller must close the Server.
func Listen(c ServerConfig) (*Server, error) {
	address, err := netip.ParseAddrPort(c.Listen)
	if err != nil {
		return nil, CheckAddress(c.Listen)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := &Server{
		address: address, log: c.Logger, comes: flood.Limit{Burst: comesBurst, Every: comesEvery}, sessions: map[*ucx.Endpoint]*session{},
	}
	s.devices.Store(devices())
	if s.context, s.worker, err = openContext(s.receive); err != nil {
		return nil, err
	}
	s.hub = newHub(s.context.Release(), c.Logger)
	s.hub.changed = s.admit
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	failed := s.listen()
	s.running.Go(func() { s.watch(ctx, failed) })
	return s, nil
}

// openContext creates a context with a worker that passes its messages to receive.
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

// admit makes the kernel keep clients that are not allowed to receive any stream away from UCX, because UCX trusts its
// input. Without the right to do so, admit only logs a warning.
func (s *Server) admit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.worker.Admit(s.hub.networks())
	switch {
	case errors.Is(err, ucx.ErrClosed): // listen does it for the next worker
		return nil
	case errors.Is(err, fs.ErrPermission):
		if !s.unguarded {
			s.log.Warn("ucx: invalid data from any client can end this program: the kernel filters clients only for a process "+
				"with CAP_NET_ADMIN (AmbientCapabilities= and CapabilityBoundingSet= of the unit)", "address", s.address)
		}
		s.unguarded = true
		return nil
	}
	return err
}

// listen starts to listen at the address.
func (s *Server) listen() error {
	if err := s.admit(); err != nil {
		return err
	}
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

// watch checks the connections, reopens UCX when there is a new network device, and retries listening.
func (s *Server) watch(ctx context.Context, failed error) {
	clock := time.NewTicker(tick)
	defer clock.Stop()
	wait, next := firstWait, time.Now()
	var later time.Time // earliest time to open UCX again
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
					s.log.Warn("ucx: UCX cannot be reopened yet for a new network device", "tried again in", lastWait, "error", err)
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

// devices returns the network devices that UCX would know if it were opened now.
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

// usable reports whether UCX would use a network device: one that is up and has an address that is not link-local. The
// loopback is left out, because UCX always knows it.
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

// grown reports whether there is a usable network device that UCX does not know. It queries the addresses of unknown
// devices only.
func (s *Server) grown() bool {
	list, _ := net.Interfaces()
	known := *s.devices.Load()
	return slices.ContainsFunc(list, func(i net.Interface) bool { return !known[i.Name] && usable(i) })
}

// reopen opens UCX again to include a new network device. It disconnects the receivers, which reconnect after the
// caller has listened again. If UCX cannot be opened, nothing changes.
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
	if !s.refused.Swap(false) { // otherwise UCX still has remains of a refused connection, which need the old worker and context
		err = errors.Join(err, s.worker.Close(), old.Close())
	}
	s.mu.Lock()
	s.worker = w
	s.mu.Unlock()
	s.log.Info("ucx: reopened for a new network device", "errors", err)
	return nil
}

// Addr returns the address where the server listens, or the zero AddrPort while it does not listen.
func (s *Server) Addr() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return netip.AddrPort{}
	}
	return s.listener.Addr()
}

// objection returns why a connection cannot be accepted, or "" if it can.
func (s *Server) objection(from netip.AddrPort) string {
	if why := s.hub.objection(plain(from)); why != "" {
		return why
	}
	switch {
	case !s.comes.Allows(time.Now()):
		return fmt.Sprintf("more than %d connections a second", time.Second/comesEvery)
	case s.grown(): // UCX would keep remains of a connection through a device that it does not know
		return "UCX does not know a new network device yet: the receiver must try again"
	}
	return ""
}

// accept accepts or rejects a connection.
func (s *Server) accept(r *ucx.ConnRequest) {
	if why := s.objection(r.From()); why != "" {
		_ = r.Reject()
		s.hub.refused(r.From().String(), why)
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
		s.hub.log.Warn("ucx: a connection cannot be accepted", "from", r.From(), "error", err)
		return
	}
	if w = s.hub.connected(&endpoint{e, func() { s.forget(e) }}, r.From().String(), time.Now()); w != nil {
		s.sessions[e] = w
	} else {
		w = &session{hub: s.hub, state: over}
		e.Abort()
	}
}

// forget forgets the session of a connection that is completely gone.
func (s *Server) forget(e *ucx.Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, e)
}

// receive passes a message to the session it belongs to.
func (s *Server) receive(m *ucx.Message) {
	s.mu.Lock()
	w := s.sessions[m.Endpoint]
	s.mu.Unlock()
	if m.Anonymous {
		s.hub.refused("unknown", "its messages need UCP_AM_SEND_FLAG_REPLY, without which UCX does not tell who sent them")
	}
	if w == nil {
		return
	}
	in := incoming{id: m.ID, header: m.Header, data: m.Data, length: m.Length}
	if m.Rendezvous {
		in.fetch = func(int, func(int, error)) error { return errWire } // the session refuses the message in any case
	}
	w.receive(in, time.Now())
}

// Stream adds a stream of frames of format f. The returned Sink is an output of a graph.
func (s *Server) Stream(c StreamConfig, f pipeline.Format) (*Sink, error) {
	return newSink(s.hub, c, f, func(slot []byte) (*ucx.Memory, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.context.Map(unsafe.Pointer(unsafe.SliceData(slot)), len(slot), ucx.Host)
	})
}

// Close ends listening and closes all connections. The streams must be closed first.
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

// An endpoint is a link over UCX.
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
		_ = e.to.Close(ctx) // ends by force if necessary; the reason for the end is already known
		e.gone()
		ended()
	}()
}
