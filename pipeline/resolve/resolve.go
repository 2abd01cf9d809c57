// SPDX-License-Identifier: Apache-2.0

// Package resolve looks up the addresses of hosts, and gives up if the name server does not respond.
package resolve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limit is the maximum duration of a lookup.
const Limit = 2 * time.Second

// every is the interval at which Follow calls look.
const every = 30 * time.Second

// Follow calls look every 30 s until ctx ends. It is for callers that send to a name for a long time and so must look
// it up again.
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

// AddrPort returns the address of "host:port". The host may be a name, and the port the name of a service for that
// network ("udp" or "tcp"). For a host with several addresses it returns the first IPv4 address, or otherwise the first
// one. It returns within Limit.
func AddrPort(ctx context.Context, network, hostport string) (netip.AddrPort, error) {
	list, err := lookUp(ctx, network, hostport)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return list[max(0, slices.IndexFunc(list, func(a netip.AddrPort) bool { return a.Addr().Is4() }))], nil
}

// Again is AddrPort at a later time: it returns addr as long as the host has that address, and after that prefers one
// of the same version of IP.
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

// IsName reports whether the host of "host:port" is a name, whose address may change.
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
	if addr, err := netip.ParseAddr(host); err == nil { // a lookup would lose its zone
		return []netip.AddrPort{netip.AddrPortFrom(addr.Unmap(), uint16(port))}, nil
	}
	list, err := silent.addresses(bounded, host)
	if err != nil {
		if bounded.Err() != nil {
			err = errors.Join(context.Cause(bounded), err)
			if ctx.Err() == nil {
				silent.add(host, err)
			}
		}
		if dns := (*net.DNSError)(nil); errors.As(err, &dns) && !dns.IsNotFound {
			return nil, fmt.Errorf("no name server answers: give the address, or wait until one does: %w", err)
		}
		return nil, fmt.Errorf("host is not known: check the name, or give the address: %w", err)
	}
	for _, a := range list {
		all = append(all, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return all, nil
}

// silent holds the names for which the name server has just not responded. They are not looked up again for Limit, so
// that a program that needs a name several times, or several names at once, waits once.
var silent unanswered

type unanswered struct {
	mu    sync.Mutex
	names map[string]silence
}

// A silence is the error of a lookup that ended at its limit.
type silence struct {
	until time.Time
	err   error
}

func (u *unanswered) add(host string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(u.names, func(_ string, s silence) bool { return now.After(s.until) })
	if u.names == nil {
		u.names = map[string]silence{}
	}
	u.names[host] = silence{now.Add(Limit), err}
}

// addresses queries the resolver. It returns an error at once for a name that never has an address (RFC 6761 §6.4), and
// for one that u holds because there was no answer for it a moment ago.
func (u *unanswered) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	u.mu.Lock()
	s := u.names[host]
	u.mu.Unlock()
	if time.Now().Before(s.until) {
		return nil, s.err
	}
	if strings.HasSuffix(strings.TrimSuffix(host, "."), ".invalid") {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
