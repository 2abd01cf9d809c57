// SPDX-License-Identifier: Apache-2.0

package rtptest

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// InNamespace runs f on a thread in a network namespace of its own, which ends with it.
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

// IP runs the command in the calling thread's namespace.
func IP(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// TransmitOnly makes an interface that takes packets for 10.9.0.2 and forgets them.
func TransmitOnly(t *testing.T) {
	t.Helper()
	IP(t, "link", "add", "x", "type", "ifb")
	IP(t, "address", "add", "10.9.0.1/24", "dev", "x")
	IP(t, "link", "set", "x", "up")
	Neighbour(t)
}

// Neighbour makes 10.9.0.2 known again, which an interface that goes down forgets.
func Neighbour(t *testing.T) {
	t.Helper()
	IP(t, "neigh", "replace", "10.9.0.2", "lladdr", "02:00:00:00:00:02", "dev", "x", "nud", "permanent")
}
