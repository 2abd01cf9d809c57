// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// TestNUMABalancing checks that pins survive NUMA balancing, in which the kernel marks memory to see which processor uses
// it, without changing pages or rights.
func TestNUMABalancing(t *testing.T) {
	if nodes, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*"); len(nodes) < 2 {
		t.Fatalf("nodes: %v", nodes)
	}
	s := newScene(t)
	const size, pinned = 16 << 20, 1 << 20
	b := anonymous(t, size)
	for at := 0; at < size; at += page {
		b[at] = 1
	}
	p, _ := s.mustPin(t, b[size/2:][:pinned])
	marks := func() int { return number("/proc/vmstat", "numa_pte_updates") }
	first := marks()
	for end := time.Now().Add(patience); marks()-first < 2*size/page; {
		for at := 0; at < size; at += 64 {
			b[at]++
		}
		if time.Now().After(end) {
			t.Fatal("the kernel does not balance: nothing is shown")
		}
	}
	time.Sleep(time.Second) // checks happen within a tick
	if q := s.query(t, p.Handle); q.State != uapi.PinLive {
		t.Errorf("%+v", q)
	}
	s.put(t, p.Handle)
	s.usable(t)
}
