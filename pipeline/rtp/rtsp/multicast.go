// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/bluenviron/gortsplib/v5/pkg/headers"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// ErrGroups means that an address range does not consist of multicast groups that can be assigned to readers.
var ErrGroups = errors.New("write a range of multicast groups of IPv4, such as 239.255.42.0/24")

var errNoGroup = errors.New("all multicast groups are taken: widen rtsp.multicast")

// groupPort is the RTP port of the first group of a range. The next group uses the next even port, and after groupPorts
// groups the ports repeat, so that a program that receives packets for its port from any address gets those of one
// group only.
const (
	groupPort  = 20000
	groupPorts = 10000
)

// CheckGroups returns an error if a range cannot be used for readers: if it is not a range of IPv4 multicast groups
// that begins at its first address, or overlaps 224.0.0.0/24, whose packets go to all hosts, or 232.0.0.0/8, where
// receivers must name the source (RFC 4607).
func CheckGroups(within netip.Prefix) error {
	no := []netip.Prefix{netip.MustParsePrefix("224.0.0.0/24"), netip.MustParsePrefix("232.0.0.0/8")}
	if !within.IsValid() || !within.Addr().Is4() || !within.Addr().IsMulticast() || within.Masked() != within ||
		slices.ContainsFunc(no, within.Overlaps) {
		return fmt.Errorf("%s: %w", within, ErrGroups)
	}
	return nil
}

// A group is a multicast group to which a stream is sent while it has readers there.
type group struct {
	stream  *stream
	iface   string // outgoing interface
	address netip.AddrPort
	packets *send.Reader
	members int
	begun   bool
	failed  error // why packets cannot be sent to it, or nil
}

// groups are the groups in use, one for each combination of stream and network interface.
type groups struct {
	within netip.Prefix

	mu   sync.Mutex
	open []*group
}

// join returns the group for a reader that has connected to this machine's address at, and counts the reader. It opens
// the group if it is not in use. heard is called for each RTCP compound that a receiver sends to it; it must not block.
func (g *groups) join(st *stream, at netip.Addr, heard func(*group, netip.Addr)) (*group, error) {
	if !g.within.IsValid() {
		return nil, errTransport
	}
	iface := cmp.Or(st.sink.Interface(), udp.InterfaceOf(at))
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range g.open {
		if x.stream == st && x.iface == iface {
			x.members++
			return x, nil
		}
	}
	address, ok := g.free()
	if !ok {
		return nil, errNoGroup
	}
	x := &group{stream: st, iface: iface, address: address, members: 1}
	packets, err := st.sink.ReaderGroup(address, iface, func(from netip.Addr) { heard(x, from) })
	if err != nil {
		return nil, err
	}
	x.packets = packets
	g.open = append(g.open, x)
	return x, nil
}

// free returns the first unused group, with its port, or false if there is none. The caller must hold mu.
func (g *groups) free() (netip.AddrPort, bool) {
	for i, a := 0, g.within.Addr(); g.within.Contains(a); i, a = i+1, a.Next() {
		if !slices.ContainsFunc(g.open, func(x *group) bool { return x.address.Addr() == a }) {
			return netip.AddrPortFrom(a, uint16(groupPort+2*(i%groupPorts))), true
		}
	}
	return netip.AddrPort{}, false
}

// startGroup starts sending to the group. If that has already started, it requests a key frame for the new reader. If
// packets cannot be sent to the group, all its readers are refused, and the next reader opens another group.
func (g *groups) startGroup(x *group) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case x.failed != nil:
	case x.begun:
		return x.packets.Begin()
	default:
		if x.failed = x.packets.Begin(); x.failed != nil {
			g.drop(x)
		}
		x.begun = x.failed == nil
	}
	return x.failed
}

// drop frees the address of a group. The caller must hold mu.
func (g *groups) drop(x *group) {
	g.open = slices.DeleteFunc(g.open, func(o *group) bool { return o == x })
}

// leave removes a reader. Without readers nothing is sent to the group any more.
func (g *groups) leave(x *group) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x.members--; x.members > 0 {
		return nil
	}
	g.drop(x)
	return x.packets.Close()
}

// transport returns the Transport header for the answer to SETUP.
func (x *group) transport() headers.Transport {
	multicast, to, port, hops := headers.TransportDeliveryMulticast, x.address.Addr().String(), int(x.address.Port()), uint(x.packets.TTL())
	return headers.Transport{Delivery: &multicast, Destination2: &to, Ports: &[2]int{port, port + 1}, TTL: &hops}
}
