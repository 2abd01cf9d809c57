// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pion/transport/v5"
	"github.com/pion/transport/v5/stdnet"

	"github.com/tegracast/tegracast/pipeline/flood"
)

// Limits for reading from a session's socket. A viewer sends reports, NACKs, ICE checks and acknowledgements of
// results: at most a few hundred packets per second.
const (
	peerBurst     = 512
	peerEvery     = time.Millisecond
	strangerBurst = 64
	strangerEvery = 20 * time.Millisecond
	deafFor       = 10 * time.Second // how long the socket ignores strangers after too many of their packets
)

// A guardedNet provides pion with the sockets of one session, which limit the cost of a flood.
type guardedNet struct {
	transport.Net

	mu   sync.Mutex
	open []*guard
}

func newGuardedNet() (*guardedNet, error) {
	n, err := stdnet.NewNet()
	return &guardedNet{Net: n}, err
}

// ListenUDP implements transport.Net.
func (n *guardedNet) ListenUDP(network string, at *net.UDPAddr) (transport.UDPConn, error) {
	c, err := net.ListenUDP(network, at)
	if err != nil {
		return nil, err
	}
	g := &guard{
		UDPConn: c, ended: make(chan struct{}),
		all:       flood.Limit{Burst: peerBurst, Every: peerEvery},
		strangers: flood.Limit{Burst: strangerBurst, Every: strangerEvery},
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = append(n.open, g)
	return g, nil
}

// connected sets the address from which the session's packets now come. From other addresses (strangers) only ICE
// checks are admitted, at a limited rate; they are needed because the session may move to another address (RFC 8445
// §7.3.1.3).
func (n *guardedNet) connected(peer netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.open {
		g.know(peer)
	}
}

// A guard is a UDP socket with limits. While it pauses, the kernel drops packets that do not fit into its buffer; while
// it is deaf, the kernel drops those of strangers.
type guard struct {
	*net.UDPConn
	all, strangers flood.Limit
	ended          chan struct{}
	once           sync.Once

	mu   sync.Mutex
	peer netip.Addr // the zero Addr means unknown
	deaf *time.Timer
}

// ReadFrom implements net.PacketConn.
func (g *guard) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := g.ReadFromAddrPort(b)
	if err != nil {
		return n, nil, err
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// WriteToAddrPort implements ice.AddrPortReaderWriter.
func (g *guard) WriteToAddrPort(b []byte, to netip.AddrPort) (int, error) {
	return g.WriteToUDPAddrPort(b, to)
}

// ReadFromAddrPort implements ice.AddrPortReaderWriter.
func (g *guard) ReadFromAddrPort(b []byte) (int, netip.AddrPort, error) {
	for {
		n, from, err := g.ReadFromUDPAddrPort(b)
		if err != nil {
			return n, from, err
		}
		now := time.Now()
		if pause := g.all.Pause(now); pause > 0 {
			select {
			case <-g.ended:
			case <-time.After(pause):
			}
		}
		if g.admits(from.Addr().Unmap(), now) {
			return n, from, nil
		}
	}
}

// admits reports whether pion gets a packet. Too many packets from strangers make the socket deaf to them for a while.
func (g *guard) admits(from netip.Addr, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.peer.IsValid() || from == g.peer {
		return true
	}
	if g.strangers.Allows(now) {
		return true
	}
	if g.deaf == nil {
		g.filter(false)
		g.deaf = time.AfterFunc(deafFor, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.deaf = nil
			g.filter(true)
		})
	}
	return false
}

// know records the address of the session's peer.
func (g *guard) know(peer netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.peer = peer
	g.filter(g.deaf == nil)
}

// filter makes the kernel admit only packets from the peer, and, if checks is true, ICE checks from other addresses.
// The caller must hold mu. If the kernel is too old for the filter, the limits still apply.
func (g *guard) filter(checks bool) {
	raw, err := g.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = flood.AdmitPeer(int(fd), g.peer, checks) })
}

// Close implements net.PacketConn.
func (g *guard) Close() error {
	g.once.Do(func() { close(g.ended) })
	g.mu.Lock()
	if g.deaf != nil {
		g.deaf.Stop()
	}
	g.mu.Unlock()
	return g.UDPConn.Close()
}
