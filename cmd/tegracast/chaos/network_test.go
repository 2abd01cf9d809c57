// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/resolve/resolvetest"
)

// The addresses of the service, and of its readers and servers, at the two ends of a link. The wrong address is unused.
const (
	serviceAddress = "10.77.0.1"
	readerAddress  = "10.77.0.2"
	wrongAddress   = "10.77.0.99"
	nameServerAt   = "127.0.0.53"
)

// A network is a network namespace, by its name for ip(8).
type network struct {
	name string
	work chan func() // functions to run on a thread in the namespace
}

// workers is the number of the test's threads in a namespace.
const workers = 4

// ip runs ip(8).
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// newNetwork creates a namespace until the test ends. Programs that "ip netns exec" starts there use the test's name
// server.
func newNetwork(t *testing.T, suffix string) *network {
	t.Helper()
	n := &network{name: fmt.Sprintf("tegracast-%d-%s", os.Getpid(), suffix), work: make(chan func())}
	folder := filepath.Join("/etc/netns", n.name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.RemoveAll(folder)
		_ = os.Remove("/etc/netns") // if it is empty
	})
	text := "nameserver " + nameServerAt + "\noptions timeout:1 attempts:2\n"
	if err := os.WriteFile(filepath.Join(folder, "resolv.conf"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := ip("netns", "add", n.name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ip("netns", "delete", n.name); err != nil {
			t.Error(err)
		}
	})
	for range workers {
		if err := n.enter(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { close(n.work) })
	if err := ip("-n", n.name, "link", "set", "lo", "up"); err != nil {
		t.Fatal(err)
	}
	return n
}

// enter starts a thread that works in the namespace.
func (n *network) enter() error {
	f, err := os.Open(filepath.Join("/run/netns", n.name))
	if err != nil {
		return err
	}
	defer f.Close()
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		entered <- err
		if err != nil {
			return
		}
		for f := range n.work {
			f()
		}
	}()
	return <-entered
}

// inNamespace runs f in the namespace.
func (n *network) inNamespace(f func()) {
	done := make(chan struct{})
	n.work <- func() { defer close(done); f() }
	<-done
}

// dial connects from the namespace.
func (n *network) dial(ctx context.Context, kind, address string) (c net.Conn, err error) {
	n.inNamespace(func() { c, err = (&net.Dialer{}).DialContext(ctx, kind, address) })
	return c, err
}

// command returns a program in the namespace.
func (n *network) command(args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", n.name}, args...)...)
}

// link connects the service's network with that of its readers.
func link(t *testing.T, here, there *network) {
	t.Helper()
	for _, line := range []string{
		"-n " + here.name + " link add v type veth peer name v netns " + there.name,
		"-n " + there.name + " address add " + readerAddress + "/24 dev v",
		"-n " + here.name + " address add " + serviceAddress + "/24 dev v",
		"-n " + here.name + " link set v up",
		"-n " + there.name + " link set v up",
	} {
		if err := ip(strings.Fields(line)...); err != nil {
			t.Fatal(err)
		}
	}
}

// answers is a behaviour of the name server.
type answers int32

const (
	right answers = iota
	silent
	refusing
	wrong // answers with the unused address
)

// A nameServer resolves every name to readerAddress.
type nameServer struct{ how atomic.Int32 }

// newNameServer runs a name server in a namespace until the test ends.
func newNameServer(t *testing.T, n *network) *nameServer {
	t.Helper()
	s := &nameServer{}
	var conn net.PacketConn
	var err error
	n.inNamespace(func() { conn, err = net.ListenPacket("udp", nameServerAt+":53") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		for question := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(question)
			if err != nil {
				return
			}
			if answer := s.answer(question[:n]); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return s
}

func (s *nameServer) is(how answers) { s.how.Store(int32(how)) }

// answer returns the answer to a question, or nil for none.
func (s *nameServer) answer(question []byte) []byte {
	switch answers(s.how.Load()) {
	case silent:
		return nil
	case refusing:
		return resolvetest.Reply(question, dnsmessage.RCodeRefused)
	case wrong:
		return resolvetest.Reply(question, dnsmessage.RCodeSuccess, netip.MustParseAddr(wrongAddress))
	}
	return resolvetest.Reply(question, dnsmessage.RCodeSuccess, netip.MustParseAddr(readerAddress))
}
