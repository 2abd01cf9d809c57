// SPDX-License-Identifier: Apache-2.0

package rtptest

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// InNamespace runs f on a thread in a separate network namespace, which ends with the thread.
func InNamespace(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatalf("network namespace (needs root): %v", err)
	}
}

// Apart runs the rest of a test in another process, in a separate network namespace, and reports whether this is that
// process. In it, the interface x has the address 10.9.0.1 and supports multicast.
func Apart(t *testing.T) bool {
	t.Helper()
	const inside = "TEGRACAST_TEST_APART"
	if os.Getenv(inside) != "" {
		for _, args := range []string{
			"link set lo up", "link add x type veth peer name y", "address add 10.9.0.1/24 dev x", "link set y up", "link set x up",
			"route add 224.0.0.0/4 dev x",
		} {
			IP(t, strings.Fields(args)...)
		}
		return !t.Failed()
	}
	c := exec.CommandContext(t.Context(), "unshare", "--net", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), inside+"=1")
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a network of its own (needs root): %v", err)
	}
	return false
}

// IP runs the command "ip" in the calling thread's namespace.
func IP(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// TransmitOnly creates an interface that accepts packets for 10.9.0.2 and discards them.
func TransmitOnly(t *testing.T) {
	t.Helper()
	IP(t, "link", "add", "x", "type", "ifb")
	IP(t, "address", "add", "10.9.0.1/24", "dev", "x")
	IP(t, "link", "set", "x", "up")
	Neighbour(t)
}

// Neighbour adds 10.9.0.2 as a neighbour again, because an interface that goes down forgets it.
func Neighbour(t *testing.T) {
	t.Helper()
	IP(t, "neigh", "replace", "10.9.0.2", "lladdr", "02:00:00:00:00:02", "dev", "x", "nud", "permanent")
}
