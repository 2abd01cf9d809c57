// SPDX-License-Identifier: Apache-2.0

package guesses

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestGuesses checks that after ten wrong passwords an address must wait for the rest of a minute, that others need
// not, and that there is one log line a minute.
func TestGuesses(t *testing.T) {
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	var g Guesses
	client, neighbour, other := From(netip.MustParseAddr("2001:db8::1")), From(netip.MustParseAddr("2001:db8::2")), From(netip.MustParseAddr("192.0.2.1"))
	now := time.Now()
	for i := range most {
		if wait := g.Wait(client, now); wait > 0 {
			t.Fatalf("waits %v after %d wrong passwords", wait, i)
		}
		g.Failed(client, "web", now, log)
	}
	if wait := g.Wait(neighbour, now.Add(time.Second)); wait != span-time.Second {
		t.Errorf("waits %v", wait)
	}
	if wait := g.Wait(other, now); wait > 0 {
		t.Errorf("another address waits %v", wait)
	}
	if wait := g.Wait(client, now.Add(span+time.Second)); wait > 0 {
		t.Errorf("waits %v after a minute", wait)
	}
	g.Failed(client, "web", now.Add(2*span), log)
	if n := g.failed[client].count; n != 1 {
		t.Errorf("%d wrong passwords are remembered, want that of the last minute", n)
	}
	if n := strings.Count(said.String(), "web: a wrong password"); n != 2 {
		t.Errorf("the log:\n%s", &said)
	}
	for i := range 5 * clients {
		g.Failed(From(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})), "web", now, log)
		if len(g.failed) > clients {
			t.Fatalf("%d clients are remembered", len(g.failed))
		}
	}
}

func TestSite(t *testing.T) {
	for client, want := range map[string]string{
		"192.0.2.7:80": "192.0.2.7", "[::ffff:192.0.2.7]:80": "192.0.2.7", "[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::", "x": "invalid IP",
	} {
		if got := Site(client).String(); got != want {
			t.Errorf("%s: %s", client, got)
		}
	}
}

// TestUsersOfThisMachine checks that on loopback a client is the user who has connected, over IPv4, IPv6, and a
// dual-stack socket.
func TestUsersOfThisMachine(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		l, err := net.Listen("tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		to := l.Addr().String()
		if listen == ":0" {
			to = fmt.Sprintf("127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port)
		}
		client, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		served, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer served.Close()
		at, err := netip.ParseAddrPort(to)
		if err != nil {
			t.Fatal(err)
		}
		if uid, found := Listener(at); !found || uid != os.Getuid() {
			t.Errorf("%s: user %d listens, %v", listen, uid, found)
		}
		if who, want := Of(served), Client(fmt.Sprintf("user %d", os.Getuid())); who != want {
			t.Errorf("%s: %q, want %q", listen, who, want)
		}
	}
}

// TestTableOfSockets checks that the addresses of both tables are parsed as written by the kernel of a little-endian
// machine.
func TestTableOfSockets(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("NEEDS a little-endian machine: the table is of one")
	}
	const table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000   995        0 1\n" +
		"   1: 0100007F:C001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2\n" +
		"   2: 00000000000000000000000001000000:C002 00000000000000000000000001000000:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 3\n"
	for from, want := range map[string]int{"127.0.0.1:49153": 1000, "[::1]:49154": 1001, "127.0.0.1:49154": -1} {
		a := netip.MustParseAddrPort(from)
		uid, found := userIn(strings.NewReader(table), a, netip.AddrPortFrom(a.Addr(), 8080))
		if !found {
			uid = -1
		}
		if uid != want {
			t.Errorf("%s: user %d, want %d", from, uid, want)
		}
	}
}

// TestIsPerson: users of services, and this process's own, are no people.
func TestIsPerson(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NEEDS root, to be another user")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for uid, want := range map[uintptr]bool{0: false, 33: false, 999: false, 1000: true, 60000: true, 61184: false, 65519: false, 65534: true, 100000: true} {
		runtime.LockOSThread() // whose user makes the socket
		unix.RawSyscall(unix.SYS_SETFSUID, uid, 0, 0)
		client, err := net.Dial("tcp", l.Addr().String())
		unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0)
		runtime.UnlockOSThread()
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		served, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer served.Close()
		if got := IsPerson(served); got != want {
			t.Errorf("user %d: %v", uid, got)
		}
	}
}
