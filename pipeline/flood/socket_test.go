// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// guarded returns a socket at a loopback address, after calling set with its descriptor, and one that sends to it from
// another address.
func guarded(t testing.TB, at, from string, set func(fd int) error) (c *net.UDPConn, send *net.UDPConn) {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(at), 0)))
	if err != nil {
		t.Skipf("NEEDS an address: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if cerr := raw.Control(func(fd uintptr) { err = set(int(fd)) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	local := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))
	if send, err = net.DialUDP("udp", local, c.LocalAddr().(*net.UDPAddr)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = send.Close() })
	return c, send
}

// waiting returns the number of packets in a socket. Loopback delivers packets while they are being sent.
func waiting(t *testing.T, c *net.UDPConn) (n int) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 2048); ; n++ {
		if _, err := c.Read(buf); err != nil {
			return n
		}
	}
}

func TestSmall(t *testing.T) {
	c, send := guarded(t, "127.0.0.1", "127.0.0.1", Small)
	for range 1000 {
		if _, err := send.Write(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	if n := waiting(t, c); n < 8 || n > 64 {
		t.Errorf("%d of 1000 packets wait, want about 20", n)
	}
}

func TestAdmitRTCP(t *testing.T) {
	report, media, stun := []byte{0x81, 201, 0, 1, 0, 0, 0, 9}, []byte{0x80, 96, 0, 1, 0, 0, 0, 9}, []byte{0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}
	for name, tt := range map[string]struct {
		at, from string
		peer     netip.Addr
		packet   []byte
		want     int
	}{
		"the peer's":          {"127.0.0.1", "127.0.0.2", netip.MustParseAddr("127.0.0.2"), report, 1},
		"a stranger's":        {"127.0.0.1", "127.0.0.2", netip.MustParseAddr("127.0.0.3"), report, 0},
		"anybody's":           {"127.0.0.1", "127.0.0.2", netip.Addr{}, report, 1},
		"no RTCP":             {"127.0.0.1", "127.0.0.2", netip.Addr{}, media, 0},
		"STUN":                {"127.0.0.1", "127.0.0.2", netip.MustParseAddr("127.0.0.2"), stun, 0},
		"a byte":              {"127.0.0.1", "127.0.0.2", netip.Addr{}, report[:1], 0},
		"the peer's, IPv6":    {"::1", "::1", netip.MustParseAddr("::1"), report, 1},
		"a stranger's, IPv6":  {"::1", "::1", netip.MustParseAddr("::2"), report, 0},
		"another's, IPv6":     {"::1", "::1", netip.MustParseAddr("1::1"), report, 0},
		"no RTCP, by IPv6":    {"::1", "::1", netip.MustParseAddr("::1"), media, 0},
		"anybody's, by IPv6":  {"::1", "::1", netip.Addr{}, report, 1},
		"nothing, by the way": {"127.0.0.1", "127.0.0.2", netip.Addr{}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, send := guarded(t, tt.at, tt.from, func(fd int) error { return AdmitRTCP(fd, tt.peer) })
			if _, err := send.Write(tt.packet); err != nil {
				t.Fatal(err)
			}
			if n := waiting(t, c); n != tt.want {
				t.Errorf("%d packets, want %d", n, tt.want)
			}
		})
	}
}

func TestAdmitPeer(t *testing.T) {
	check, other, short := []byte{0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}, []byte{1, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}, []byte{0, 1, 0}
	for name, tt := range map[string]struct {
		at, from, peer string
		checks         bool
		packet         []byte
		want           int
	}{
		"the peer's":               {"127.0.0.1", "127.0.0.2", "127.0.0.2", false, other, 1},
		"the peer's, short":        {"127.0.0.1", "127.0.0.2", "127.0.0.2", true, short, 1},
		"a stranger's":             {"127.0.0.1", "127.0.0.2", "127.0.0.3", false, check, 0},
		"a stranger's check":       {"127.0.0.1", "127.0.0.2", "127.0.0.3", true, check, 1},
		"a stranger's answer":      {"127.0.0.1", "127.0.0.2", "127.0.0.3", true, other, 0},
		"a stranger's, short":      {"127.0.0.1", "127.0.0.2", "127.0.0.3", true, short, 0},
		"the peer's, IPv6":         {"::1", "::1", "::1", false, other, 1},
		"a stranger's, IPv6":       {"::1", "::1", "::2", false, check, 0},
		"a stranger's, IPv6, head": {"::1", "::1", "2::1", false, check, 0},
		"a stranger's check, IPv6": {"::1", "::1", "::2", true, check, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, send := guarded(t, tt.at, tt.from, func(fd int) error { return AdmitPeer(fd, netip.MustParseAddr(tt.peer), tt.checks) })
			if _, err := send.Write(tt.packet); err != nil {
				t.Fatal(err)
			}
			if n := waiting(t, c); n != tt.want {
				t.Errorf("%d packets, want %d", n, tt.want)
			}
		})
	}
}

// FuzzFilters checks that the kernel's filters admit the same packets as an implementation in Go.
func FuzzFilters(f *testing.F) {
	peer, stranger := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	rtcp, report := guarded(f, "127.0.0.1", "127.0.0.2", func(fd int) error { return AdmitRTCP(fd, peer) })
	ice, check := guarded(f, "127.0.0.1", "127.0.0.2", func(fd int) error { return AdmitPeer(fd, stranger, true) })
	for _, seed := range []string{"\x81\xc9\x00\x01", "\x80\x60", "\x00\x01\x00\x00\x21\x12\xa4\x42", "\x00\x01\x00\x00\x21\x12\xa4", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:min(len(b), 1400)]
		is := len(b) >= 2 && b[0]>>6 == 2 && b[1] >= 192 && b[1] <= 223
		if got := passes(t, rtcp, report, b); got != is {
			t.Errorf("%x: RTCP %v, passes %v", b, is, got)
		}
		is = len(b) >= 8 && b[0] == 0 && b[1] == 1 && string(b[4:8]) == "\x21\x12\xa4\x42"
		if got := passes(t, ice, check, b); got != is {
			t.Errorf("%x: a check %v, passes %v", b, is, got)
		}
	})
}

// passes reports whether a packet is in a socket after it was sent. Loopback delivers packets while they are being
// sent.
func passes(t *testing.T, c, send *net.UDPConn, b []byte) bool {
	t.Helper()
	if _, err := send.Write(b); err != nil {
		t.Fatal(err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	came := false
	if err := raw.Control(func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 2048), unix.MSG_DONTWAIT)
		came = err == nil
	}); err != nil {
		t.Fatal(err)
	}
	return came
}
