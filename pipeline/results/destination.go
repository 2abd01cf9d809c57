// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/tegracast/tegracast/pipeline/resolve"
)

// A destination receives one datagram for each frame.
type destination struct {
	name   string // "host:port"
	addr   netip.AddrPort
	socket atomic.Pointer[net.UDPConn]
}

// connect opens the socket for a destination "host:port".
func connect(name string) (*destination, error) {
	d := &destination{name: name}
	to, err := resolve.AddrPort(context.Background(), "udp", name)
	if err != nil {
		return nil, err
	}
	return d, d.to(to)
}

// to redirects the datagrams to an address.
func (d *destination) to(addr netip.AddrPort) error {
	socket, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return err
	}
	d.addr = addr
	if before := d.socket.Swap(socket); before != nil {
		return before.Close()
	}
	return nil
}

// follow keeps the addresses up to date with the destinations' names, until ctx ends or end is called.
func (s *Sink) follow(ctx context.Context) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	for _, d := range s.udp {
		if resolve.IsName(d.name) {
			following.Go(func() { resolve.Follow(ctx, func() { d.lookAgain(ctx, s.log) }) })
		}
	}
	return func() { stop(); following.Wait() }
}

// lookAgain resolves the name again. If that fails, the address stays as it is.
func (d *destination) lookAgain(ctx context.Context, log *slog.Logger) {
	was := d.addr
	addr, err := resolve.Again(ctx, "udp", d.name, was)
	if err != nil || addr == was {
		return
	}
	log = log.With("destination", d.name, "was", was, "is", addr)
	if err := d.to(addr); err != nil {
		log.Warn("the name of a destination has a new address, to which nothing can be sent", "error", err)
		return
	}
	log.Info("the name of a destination has a new address: results are sent there now")
}
