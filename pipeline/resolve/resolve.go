// SPDX-License-Identifier: Apache-2.0

// Package resolve looks up the addresses of hosts, and gives up when the name server does not answer.
package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Limit bounds every look-up.
const Limit = 2 * time.Second

// AddrPort returns the address of "host:port", whose host may be a name and whose port a service's name of that network ("udp" or "tcp").
// Of a host with several addresses it returns the first IPv4 address, or else the first one. It returns within Limit.
func AddrPort(ctx context.Context, network, hostport string) (netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(hostport)
	if err != nil {
		return netip.AddrPort{}, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, Limit, fmt.Errorf("the name server has not answered within %v", Limit))
	defer cancel()
	port, err := net.DefaultResolver.LookupPort(bounded, network, service)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if addr, err := netip.ParseAddr(host); err == nil { // a look-up would lose its zone
		return netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
	}
	list, err := net.DefaultResolver.LookupNetIP(bounded, "ip", host)
	if err != nil {
		if bounded.Err() != nil {
			err = errors.Join(context.Cause(bounded), err)
		}
		return netip.AddrPort{}, fmt.Errorf("host is not known: check the name, or give the address: %w", err)
	}
	i := max(0, slices.IndexFunc(list, func(a netip.Addr) bool { return a.Unmap().Is4() }))
	return netip.AddrPortFrom(list[i].Unmap(), uint16(port)), nil
}
