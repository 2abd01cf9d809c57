// SPDX-License-Identifier: Apache-2.0

package kmodtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
)

const (
	kmemleak  = "/sys/kernel/debug/kmemleak"
	leakLimit = 10 * time.Minute // for kmemleak's scans
)

// watchLeaks lets kmemleak look for leaks of the modules after the machine's tests. The kernel's own leaks are only
// logged.
func (m machine) watchLeaks() {
	m.t.Helper()
	if _, err := m.Expect(`kmemleak: \d+ new suspected`); err != nil {
		m.t.Fatal(err)
	}
	m.shell("echo scan=off > " + kmemleak) // by default it scans every 10 minutes
	t := m.t
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), leakLimit)
		defer cancel()
		// Objects younger than 5 s, or changed since the last scan, are not reported.
		report, err := m.Shell(ctx, "sleep 6; echo scan > "+kmemleak+" && echo scan > "+kmemleak+" && cat "+kmemleak)
		switch leaks := leaksOf(report, "tegra_p2p", "nvp2p"); {
		case errors.Is(err, vjetson.ErrEnded) || errors.Is(err, vjetson.ErrPanic): // reported by Close
		case err != nil:
			t.Errorf("kmemleak: %v", err)
		case leaks != nil:
			t.Errorf("kmemleak: %d leaks of the modules:\n%s", len(leaks), strings.Join(leaks, "\n"))
		case report != "":
			t.Logf("kmemleak: leaks of the kernel's own:\n%s", report)
		}
	})
}

// leaksOf returns the kmemleak reports whose backtrace goes through one of the modules.
func leaksOf(report string, modules ...string) []string {
	var leaks []string
	for i, one := range strings.Split(report, "unreferenced object ") {
		for _, m := range modules {
			if i > 0 && strings.Contains(one, "["+m+"]") {
				leaks = append(leaks, strings.TrimSpace(one))
				break
			}
		}
	}
	return leaks
}

func TestLeaksOf(t *testing.T) {
	const report = `unreferenced object 0xffff000005e3a900 (size 128):
  comm "guest.test", pid 512, jiffies 4294894512 (age 12.300s)
  hex dump (first 32 bytes):
    00 01 00 00 00 00 ad de 22 01 00 00 00 00 ad de  ........".......
  backtrace:
    [<00000000b1b5f4a2>] slab_post_alloc_hook+0x9c/0x3c0
    [<0000000062e17a0d>] kmem_cache_alloc+0x180/0x2f0
    [<000000007a5b0c11>] tp_pin+0x5c/0x4e0 [tegra_p2p]
    [<000000007a5b0c12>] tp_ioctl+0x10c/0x2e0 [tegra_p2p]
unreferenced object 0xffff000005e3ab00 (size 64):
  comm "swapper/0", pid 1, jiffies 4294892296 (age 22.300s)
  backtrace:
    [<0000000062e17a0d>] kmem_cache_alloc+0x180/0x2f0
    [<00000000aa62b8cd>] do_one_initcall+0x9c/0x3d0
`
	leaks := leaksOf(report, "nvp2p", "tegra_p2p")
	if len(leaks) != 1 || !strings.HasPrefix(leaks[0], "0xffff000005e3a900 (size 128)") || !strings.HasSuffix(leaks[0], "tp_ioctl+0x10c/0x2e0 [tegra_p2p]") {
		t.Errorf("%q", leaks)
	}
	if got := leaksOf(report, "nvp2p"); got != nil {
		t.Errorf("%q", got)
	}
	if got := leaksOf("", "tegra_p2p"); got != nil {
		t.Errorf("%q", got)
	}
}

// shortOfMemory matches messages of the kernel's checks when their own memory is refused, with which they cope.
const shortOfMemory = `DMA-API: (cacheline tracking ENOMEM|debugging out of memory)|kmemleak: Cannot allocate a scan area|Huh VM_FAULT_OOM leaked`

// TestInjection makes the allocations of every call fail one after the other.
func TestInjection(t *testing.T) {
	if !sanitized() {
		t.Skip("NEEDS a kernel with fault injection: make test-sanitized runs it")
	}
	b := build(t, "arm64")
	for name, w := range b.ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := b.start(t, w, vjetson.Config{Edu: true})
			if _, err := m.Expect(shortOfMemory); err != nil {
				t.Fatal(err)
			}
			m.guest(t, "^TestInjected$")
		})
	}
}
