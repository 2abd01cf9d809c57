// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

// listening returns a listener at a loopback address, after calling set with its socket.
func listening(t testing.TB, at string, set func(fd int) error) net.Listener {
	t.Helper()
	var config net.ListenConfig
	config.SetMultipathTCP(false) // which takes no filters
	l, err := config.Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Skipf("NEEDS an address: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if cerr := raw.Control(func(fd uintptr) { err = set(int(fd)) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return l
}

// connects reports whether a client from an address gets a connection. One that does not must get no answer.
func connects(t *testing.T, l net.Listener, from string) bool {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 200 * time.Millisecond}
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

func TestAdmitFrom(t *testing.T) {
	many := func(n int, form string) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf(form, i/256, i%256))
		}
		return list
	}
	for name, tt := range map[string]struct {
		at, from string
		networks []string
		want     bool
	}{
		"nobody":                {"127.0.0.1:0", "127.0.0.2", nil, false},
		"nobody, IPv6":          {"[::1]:0", "::1", nil, false},
		"its network":           {"127.0.0.1:0", "127.0.0.2", []string{"192.0.2.0/24", "127.0.0.0/8"}, true},
		"itself":                {"127.0.0.1:0", "127.0.0.2", []string{"127.0.0.2/32"}, true},
		"with bits behind":      {"127.0.0.1:0", "127.0.0.2", []string{"127.9.9.9/8"}, true},
		"its neighbour":         {"127.0.0.1:0", "127.0.0.2", []string{"127.0.0.3/32"}, false},
		"the other half":        {"127.0.0.1:0", "127.0.0.2", []string{"127.128.0.0/9"}, false},
		"all of IPv4":           {"127.0.0.1:0", "127.0.0.2", []string{"0.0.0.0/0"}, true},
		"all of IPv6":           {"127.0.0.1:0", "127.0.0.2", []string{"::/0"}, false},
		"all of IPv6, IPv6":     {"[::1]:0", "::1", []string{"::/0"}, true},
		"itself, IPv6":          {"[::1]:0", "::1", []string{"2001:db8::/32", "::1/128"}, true},
		"its network, IPv6":     {"[::1]:0", "::1", []string{"::/70"}, true},
		"its neighbour, IPv6":   {"[::1]:0", "::1", []string{"::2/127"}, false},
		"another's end, IPv6":   {"[::1]:0", "::1", []string{"1::1/128"}, false},
		"the same in IPv4":      {"[::1]:0", "::1", []string{"0.0.0.1/32", "127.0.0.0/8"}, false},
		"IPv4 at both":          {":0", "127.0.0.2", []string{"127.0.0.0/8"}, true},
		"a stranger at both":    {":0", "127.0.0.2", []string{"::/0", "192.0.2.0/24"}, false},
		"the last of very many": {"127.0.0.1:0", "127.0.0.2", append(many(900, "10.%d.%d.0/24"), "127.0.0.2/32"), true},
		"none of very many":     {"[::1]:0", "::1", many(300, "2001:db8:%x:%x::/64"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var networks []netip.Prefix
			for _, n := range tt.networks {
				networks = append(networks, netip.MustParsePrefix(n))
			}
			l := listening(t, tt.at, func(fd int) error { return AdmitFrom(fd, networks) })
			if got := connects(t, l, tt.from); got != tt.want {
				t.Errorf("connects: %v", got)
			}
		})
	}
	if err := AdmitFrom(0, make([]netip.Prefix, mostInstructions)); err == nil {
		t.Error("the kernel is asked for too much")
	}
}

// TestAdmitMessages checks that only whole messages get through.
func TestAdmitMessages(t *testing.T) {
	message := func(length uint64, n int) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, length), make([]byte, n-8)...)
	}
	for name, tt := range map[string]struct {
		data []byte
		want bool
	}{
		"empty":                   {message(0, 16), true},
		"one byte":                {message(1, 17), true},
		"many bytes":              {message(0x1234, 16+0x1234), true},
		"shorter than it says":    {message(10, 25), false},
		"longer than it says":     {message(10, 27), false},
		"a head that is cut":      {message(0, 15), false},
		"a byte":                  {[]byte{0}, false},
		"zeros":                   {make([]byte, 64), false},
		"ones":                    {bytes.Repeat([]byte{0xff}, 4096), false},
		"a length of 3 bytes":     {message(0x10000, 16), false},
		"a length of 7 bytes":     {message(1<<48, 16), false},
		"a length beyond the end": {message(^uint64(0)-15, 16), false},
		"HTTP":                    {[]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), false},
	} {
		t.Run(name, func(t *testing.T) {
			l := listening(t, "127.0.0.1:0", func(fd int) error { return AdmitMessages(fd, Everyone) })
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			served, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer served.Close()
			for range 2 { // the second one comes behind the first
				if _, err := c.Write(tt.data); err != nil {
					t.Fatal(err)
				}
				if err := served.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
					t.Fatal(err)
				}
				if _, err := served.Read(make([]byte, 1<<16)); (err == nil) != tt.want {
					t.Errorf("%d bytes: %v", len(tt.data), err)
				}
			}
		})
	}
}
