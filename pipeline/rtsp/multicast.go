// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/headers"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// ErrGroups means that a range is not one of multicast groups that can be given to readers.
var ErrGroups = errors.New("write a range of multicast groups of IPv4, such as 239.255.42.0/24")

var errNoGroup = errors.New("all multicast groups are taken: widen rtsp.multicast")

// groupPort is the RTP port of the first group of a range. The next group has the next even port: a program that takes packets of its
// port from any address gets those of one group.
const (
	groupPort  = 20000
	groupPorts = 10000
)

// CheckGroups says whether a range can be given to readers: not all of it is, where packets go to all hosts (224.0.0.0/24), or where
// receivers must name the source (232.0.0.0/8, RFC 4607).
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
	iface   string // by which packets leave
	address netip.AddrPort
	packets *send.Reader
	members int
	begun   bool
	failed  error // why it cannot be sent to; nil: it can
}

// groups are those that are sent to, one for the readers of a stream behind a network interface.
type groups struct {
	within netip.Prefix

	mu   sync.Mutex
	open []*group
	last int // number of a reader
}

// join adds a reader, which has reached this machine at an address.
func (g *groups) join(st *stream, at netip.Addr) (*group, error) {
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
	packets, err := st.sink.ReaderGroup(address, iface)
	if err != nil {
		return nil, err
	}
	x := &group{stream: st, iface: iface, address: address, packets: packets, members: 1}
	g.open = append(g.open, x)
	return x, nil
}

// free is the first group that nothing is sent to. The lock is held.
func (g *groups) free() (netip.AddrPort, bool) {
	for i, a := 0, g.within.Addr(); g.within.Contains(a); i, a = i+1, a.Next() {
		if !slices.ContainsFunc(g.open, func(x *group) bool { return x.address.Addr() == a }) {
			return netip.AddrPortFrom(a, uint16(groupPort+2*(i%groupPorts))), true
		}
	}
	return netip.AddrPort{}, false
}

// begin has the group sent to. A further reader gets a key frame soon, if frames refer to others. A group that cannot be sent to is
// refused to all its readers. The next reader opens another one.
func (g *groups) begin(x *group) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case x.failed != nil:
	case x.begun:
		x.stream.sink.KeyFrame()
	default:
		if x.failed = x.packets.Begin(); x.failed != nil {
			g.drop(x)
		}
		x.begun = x.failed == nil
	}
	return x.failed
}

// drop frees the address of a group. The lock is held.
func (g *groups) drop(x *group) {
	g.open = slices.DeleteFunc(g.open, func(o *group) bool { return o == x })
}

// leave takes a reader off. With the last one the sending ends.
func (g *groups) leave(x *group) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x.members--; x.members > 0 {
		return nil
	}
	g.drop(x)
	return x.packets.Close()
}

// ports are two that stand for a reader of a group in gortsplib. No reader by UDP has them: RTP's port is even there.
func (g *groups) ports() *[2]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	odd := 2*(g.last%groupPorts) + 1
	return &[2]int{odd, odd + 1}
}

// OnRequest implements gortsplib.ServerHandlerOnRequest. gortsplib listens to the groups that it gives to readers, and would take each
// packet that is sent there. So it hears of a reader by UDP, to which it sends nothing.
func (h *handler) OnRequest(sc *gortsplib.ServerConn, r *base.Request) {
	c, direct := sc.NetConn().(*conn)
	if direct {
		h.listener.heard(c)
	}
	if !direct || r.Method != base.Setup || !h.groups.within.IsValid() {
		return
	}
	var all headers.Transports
	c.multicast = all.Unmarshal(r.Header["Transport"]) == nil && len(all) > 0 && asksGroup(all[0])
	if c.multicast {
		unicast := headers.TransportDeliveryUnicast
		instead := headers.Transport{Delivery: &unicast, ClientPorts: h.groups.ports(), Mode: all[0].Mode}
		r.Header["Transport"] = instead.Marshal()
	}
}

func asksGroup(t headers.Transport) bool {
	return t.Profile == headers.TransportProfileAVP && t.Protocol == headers.TransportProtocolUDP &&
		t.Delivery != nil && *t.Delivery == headers.TransportDeliveryMulticast
}

// transport answers SETUP of a group.
func (x *group) transport() headers.Transport {
	multicast, to, port, hops := headers.TransportDeliveryMulticast, x.address.Addr().String(), int(x.address.Port()), uint(x.packets.TTL())
	return headers.Transport{Delivery: &multicast, Destination2: &to, Ports: &[2]int{port, port + 1}, TTL: &hops}
}

// localAddress is the address at which a client has reached this machine.
func localAddress(c net.Conn) netip.Addr {
	return c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}
