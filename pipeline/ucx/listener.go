// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Listener receives connection requests at an address.
type Listener struct {
	worker  *Worker
	number  uint32
	handle  uintptr
	addr    netip.AddrPort
	accept  func(*ConnRequest)
	pending map[*ConnRequest]bool // neither accepted nor rejected
}

// Listen listens at an IPv4 or IPv6 address. The unspecified address stands for all addresses, port 0 for any free
// port. accept is called with each request and must accept or reject it, now or later.
func (w *Worker) Listen(addr netip.AddrPort, accept func(*ConnRequest)) (*Listener, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ErrClosed
	}
	s, n, err := w.toSockaddr(addr)
	if err != nil {
		return nil, err
	}
	w.last++
	l := &Listener{worker: w, number: w.last, accept: accept, pending: map[*ConnRequest]bool{}}
	w.listeners[l.number] = l
	p := &listenerParams{
		mask: listenerAddress | listenerHandler, address: sockaddr{address: uintptr(unsafe.Pointer(s)), length: n},
		handler: callbacks().request, argument: w.key(l.number),
	}
	if err := w.library.try(symListenerCreate, addr.String(), w.handle, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&l.handle))); err != nil {
		delete(w.listeners, l.number)
		return nil, err
	}
	a := &listenerAttr{mask: 1}
	if err := w.library.try(symListenerQuery, addr.String(), l.handle, uintptr(unsafe.Pointer(a))); err != nil {
		l.destroy()
		return nil, err
	}
	l.addr = fromSockaddr(&a.address)
	if err := l.guard(); err != nil && !errors.Is(err, fs.ErrPermission) { // Admit has reported that one
		l.destroy()
		return nil, err
	}
	w.wake()
	return l, nil
}

// Addr returns the address, with the actual port.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Close closes the listener. Pending requests are rejected; existing endpoints stay open.
func (l *Listener) Close() error {
	w := l.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listeners[l.number] != l {
		return ErrClosed
	}
	l.destroy()
	w.wake()
	return nil
}

func (l *Listener) destroy() {
	l.drain()
	l.worker.call(symListenerDestroy, l.handle)
	delete(l.worker.listeners, l.number)
}

// A ConnRequest is a peer's request to connect.
type ConnRequest struct {
	listener *Listener
	handle   uintptr
	from     netip.AddrPort
}

func (l *Listener) newRequest(handle uintptr) *ConnRequest {
	r := &ConnRequest{listener: l, handle: handle}
	a := &connRequestAttr{mask: 1}
	if l.worker.library.try(symConnRequestQuery, "", handle, uintptr(unsafe.Pointer(a))) == nil {
		r.from = fromSockaddr(&a.address)
	}
	l.pending[r] = true
	return r
}

// From returns the address of the peer, or the zero AddrPort if it is unknown.
func (r *ConnRequest) From() netip.AddrPort { return r.from }

// Accept accepts the connection and returns its endpoint. The error is ErrClosed if the request has been answered
// before, or the listener or the worker is closed; otherwise it is the library's.
func (r *ConnRequest) Accept(o EndpointOptions) (*Endpoint, error) {
	return r.AcceptOn(r.listener.worker, o)
}

// AcceptOn is like Accept, but creates the endpoint on another worker of the context.
func (r *ConnRequest) AcceptOn(w *Worker, o EndpointOptions) (*Endpoint, error) {
	home := r.listener.worker
	first, second := home, w
	if first.number > second.number {
		first, second = second, first
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	if second != first {
		second.mu.Lock()
		defer second.mu.Unlock()
	}
	if w.closed || !r.listener.pending[r] {
		return nil, ErrClosed
	}
	delete(r.listener.pending, r)
	home.wake()
	return w.newEndpoint(r.params(), r.peer(), o)
}

func (r *ConnRequest) params() *endpointParams {
	return &endpointParams{mask: endpointRequest, request: r.handle, errorMode: errorsOfPeer}
}

func (r *ConnRequest) peer() string { return "from " + r.from.String() }

// Reject refuses the connection. The peer's endpoint fails as if the connection had been closed: with
// ErrConnectionReset, ErrEndpointTimeout or ErrNotConnected. Reject returns ErrClosed if the request has been answered
// before, or the listener is closed.
func (r *ConnRequest) Reject() error {
	w := r.listener.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if !r.listener.pending[r] {
		return ErrClosed
	}
	w.wake()
	return r.refuse()
}

// toSockaddr converts an address to a struct sockaddr_in or sockaddr_in6, and returns that with its length. It refuses
// addresses of the family that the library's TCP does not use: for those, 1.13 writes out of bounds on both sides of
// the connection.
func (w *Worker) toSockaddr(a netip.AddrPort) (*storage, uint32, error) {
	s := &storage{}
	ip := a.Addr().Unmap()
	if ip.IsValid() && ip.Is6() != w.context.ipv6 {
		return nil, 0, fmt.Errorf("%w: %v", ErrFamily, a)
	}
	if ip.Is4() {
		binary.NativeEndian.PutUint16(s[0:], unix.AF_INET)
		binary.BigEndian.PutUint16(s[2:], a.Port())
		copy(s[4:], ip.AsSlice())
		return s, unix.SizeofSockaddrInet4, nil
	}
	if !ip.Is6() {
		return nil, 0, fmt.Errorf("ucx: no address: %v", a)
	}
	binary.NativeEndian.PutUint16(s[0:], unix.AF_INET6)
	binary.BigEndian.PutUint16(s[2:], a.Port())
	copy(s[8:], ip.AsSlice())
	if zone := ip.Zone(); zone != "" {
		scope, err := scopeOf(zone)
		if err != nil {
			return nil, 0, fmt.Errorf("ucx: zone of %v: %w", a, err)
		}
		binary.NativeEndian.PutUint32(s[24:], scope)
	}
	return s, unix.SizeofSockaddrInet6, nil
}

// scopeOf returns the index of the network interface given by name or number.
func scopeOf(zone string) (uint32, error) {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	i, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, err
	}
	return uint32(i.Index), nil
}

// fromSockaddr converts a struct sockaddr_in or sockaddr_in6 to an address, and any other to the zero AddrPort.
func fromSockaddr(s *storage) netip.AddrPort {
	port := binary.BigEndian.Uint16(s[2:])
	switch binary.NativeEndian.Uint16(s[0:]) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s[4:8])), port)
	case unix.AF_INET6:
		ip := netip.AddrFrom16([16]byte(s[8:24]))
		if scope := binary.NativeEndian.Uint32(s[24:]); scope != 0 {
			ip = ip.WithZone(strconv.FormatUint(uint64(scope), 10))
		}
		return netip.AddrPortFrom(ip, port)
	}
	return netip.AddrPort{}
}
