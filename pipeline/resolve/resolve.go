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
	"strings"
	"time"
)

// Limit bounds every look-up.
const Limit = 2 * time.Second

// every is the interval of Follow.
const every = 30 * time.Second

// Follow calls look every 30 s until ctx ends: whoever sends to a name for long looks it up again.
func Follow(ctx context.Context, look func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			look()
		case <-ctx.Done():
			return
		}
	}
}

// AddrPort returns the address of "host:port", whose host may be a name and whose port a service's name of that network ("udp" or "tcp").
// Of a host with several addresses it returns the first IPv4 address, or else the first one. It returns within Limit.
func AddrPort(ctx context.Context, network, hostport string) (netip.AddrPort, error) {
	list, err := lookUp(ctx, network, hostport)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return list[max(0, slices.IndexFunc(list, func(a netip.AddrPort) bool { return a.Addr().Is4() }))], nil
}

// Again is AddrPort some time later: it returns addr as long as the host has that address.
func Again(ctx context.Context, network, hostport string, addr netip.AddrPort) (netip.AddrPort, error) {
	list, err := lookUp(ctx, network, hostport)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if slices.Contains(list, addr) {
		return addr, nil
	}
	return list[max(0, slices.IndexFunc(list, func(a netip.AddrPort) bool { return a.Addr().Is4() == addr.Addr().Is4() }))], nil
}

// IsName reports whether the host of "host:port" is a name, which may lead elsewhere some time later.
func IsName(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err != nil
}

// lookUp returns all addresses of "host:port".
func lookUp(ctx context.Context, network, hostport string) (all []netip.AddrPort, err error) {
	host, service, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, Limit, fmt.Errorf("the name server has not answered within %v", Limit))
	defer cancel()
	port, err := net.DefaultResolver.LookupPort(bounded, network, service)
	if err != nil {
		return nil, err
	}
	if addr, err := netip.ParseAddr(host); err == nil { // a look-up would lose its zone
		return []netip.AddrPort{netip.AddrPortFrom(addr.Unmap(), uint16(port))}, nil
	}
	list, err := addresses(bounded, host)
	if err != nil {
		if bounded.Err() != nil {
			err = errors.Join(context.Cause(bounded), err)
		}
		if dns := (*net.DNSError)(nil); errors.As(err, &dns) && !dns.IsNotFound {
			return nil, fmt.Errorf("no name server tells where it is: give the address, or wait until one does: %w", err)
		}
		return nil, fmt.Errorf("host is not known: check the name, or give the address: %w", err)
	}
	for _, a := range list {
		all = append(all, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return all, nil
}

// addresses asks the resolver, but for names that never have an address (RFC 6761 §6.4).
func addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if strings.HasSuffix(strings.TrimSuffix(host, "."), ".invalid") {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
