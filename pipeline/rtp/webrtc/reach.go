// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"net/netip"
	"slices"

	"github.com/pion/ice/v4"
	"github.com/pion/sdp/v3"
)

// withinReach returns a server's answer without the candidates (RFC 8839 §5.1) to which this machine must not send:
// those closer to this machine than the server's own addresses, and those given as names. Thus a server on the internet
// cannot cause packets to be sent to this machine or its network (RFC 8445 §19.5).
func withinReach(answer []byte, server []netip.Addr) (string, error) {
	var d sdp.SessionDescription
	if err := d.Unmarshal(answer); err != nil {
		return "", err
	}
	most := 0
	for _, a := range server {
		most = max(most, closeness(a))
	}
	far := func(a sdp.Attribute) bool {
		if !a.IsICECandidate() {
			return false
		}
		c, err := ice.UnmarshalCandidate(a.Value)
		if err != nil {
			return true
		}
		at, err := netip.ParseAddr(c.Address())
		return err != nil || closeness(at) > most
	}
	d.Attributes = slices.DeleteFunc(d.Attributes, far)
	for _, m := range d.MediaDescriptions {
		m.Attributes = slices.DeleteFunc(m.Attributes, far)
	}
	text, err := d.Marshal()
	return string(text), err
}

// shared is the address space of carriers and of overlay networks (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// closeness returns how close to this machine an address is: the higher, the closer.
func closeness(a netip.Addr) int {
	const global, private, link, machine = 0, 1, 2, 3
	switch a = a.Unmap(); {
	case a.IsLoopback(), a.IsUnspecified():
		return machine
	case a.IsLinkLocalUnicast(), a.IsMulticast():
		return link
	case a.IsPrivate(), shared.Contains(a):
		return private
	}
	return global
}
