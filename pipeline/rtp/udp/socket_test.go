// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestInterfaceOf(t *testing.T) {
	if name := InterfaceOf(netip.MustParseAddr("127.0.0.1")); name != "lo" {
		t.Errorf("127.0.0.1 belongs to %q", name)
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]struct {
		family int
		back   string
	}{
		"192.0.2.1:5004":     {unix.AF_INET, "192.0.2.1:5004"},
		"[2001:db8::1]:5004": {unix.AF_INET6, "[2001:db8::1]:5004"},
		"[fe80::1%7]:5004":   {unix.AF_INET6, "[fe80::1%7]:5004"},
		"[fe80::1%lo]:5004":  {unix.AF_INET6, "[fe80::1%1]:5004"},
	} {
		a := netip.MustParseAddrPort(text)
		if f := Family(a.Addr()); f != want.family {
			t.Errorf("%s: family %d, want %d", text, f, want.family)
		}
		if back := AddrPort(Sockaddr(a)); back.String() != want.back {
			t.Errorf("%s: %s, want %s", text, back, want.back)
		}
	}
	if a := AddrPort(&unix.SockaddrUnix{}); a.IsValid() {
		t.Errorf("a socket of another kind has address %s", a)
	}
}
