// SPDX-License-Identifier: Apache-2.0

package flood

import "net/netip"

const networkBits = 64 // prefix length of an IPv6 network within which one client owns all addresses

// Network returns the address itself or, for IPv6, the network within which its owner can choose addresses.
func Network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() && !a.IsLoopback() {
		p, _ := a.Prefix(networkBits)
		return p.Addr()
	}
	return a
}
