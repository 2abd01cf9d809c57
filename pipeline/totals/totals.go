// SPDX-License-Identifier: Apache-2.0

// Package totals adds up the counters of clients that come and go, in a small number of groups, so that a metrics
// server does not have to keep a series for each client.
package totals

import (
	"net"
	"net/netip"
	"sync"
)

const (
	most = 32 // maximum number of groups; clients of any further group are counted in Others

	// Others is the group of clients for which there is no group left.
	Others = "others"
)

// A Client is a client that is currently connected.
type Client struct {
	Name   string // unique
	Group  string
	Counts []uint64 // of the same length for all clients; they never decrease while the client is connected
}

// Totals are counters by group, including those of clients that have disconnected. The zero value is empty and ready to
// use. Its methods may be called concurrently.
type Totals struct {
	mu    sync.Mutex
	there map[string]Client
	gone  map[string][]uint64 // by group, including every group seen so far
}

// Count returns the totals of all groups seen so far, given the clients that are connected now. No total decreases from
// one call to the next. What a client counts between the last call before it disconnects and that moment is lost.
func (t *Totals) Count(clients []Client) map[string][]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.there
	t.there = make(map[string]Client, len(clients))
	if t.gone == nil {
		t.gone = map[string][]uint64{}
	}
	for _, c := range clients {
		if _, known := t.gone[c.Group]; !known && len(t.gone) >= most {
			c.Group = Others
		}
		if t.gone[c.Group] == nil {
			t.gone[c.Group] = make([]uint64, len(c.Counts))
		}
		if old, known := before[c.Name]; known && old.Group == c.Group && !less(c.Counts, old.Counts) {
			delete(before, c.Name)
		}
		t.there[c.Name] = c
	}
	for _, c := range before {
		add(t.gone[c.Group], c.Counts)
	}
	all := make(map[string][]uint64, len(t.gone))
	for group, counts := range t.gone {
		all[group] = append([]uint64(nil), counts...)
	}
	for _, c := range t.there {
		add(all[c.Group], c.Counts)
	}
	return all
}

// less reports whether any counter of a is less than that of b, which means that a is another client with the same
// name.
func less(a, b []uint64) bool {
	for i := range a {
		if a[i] < b[i] {
			return true
		}
	}
	return false
}

func add(to, counts []uint64) {
	for i, n := range counts {
		to[i] += n
	}
}

// Host returns the group for an address "host:port": the host without the port, which changes with each connection. For
// an IPv6 address it is the network, and for a text without a port Others.
func Host(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return Others
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap().WithZone(""); a.Is4() {
		return a.String()
	}
	network, _ := a.Prefix(64) // one client owns all addresses within it
	return network.String()
}
