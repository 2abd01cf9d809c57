// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
)

const canary = 0xa5

// guarded returns n bytes of noise that end where inaccessible memory begins: reading or writing beyond them ends the
// process. Before them are canaries, which intact checks.
func guarded(t testing.TB, n int) []byte {
	t.Helper()
	page := os.Getpagesize()
	size := (n + page - 1 + 64) / page * page
	m, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for i, b := range m[:size-n] {
			if b != canary {
				t.Errorf("byte %d in front of the frame was written", i-(size-n))
				break
			}
		}
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mprotect(m[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for i := range m[:size] {
		m[i] = canary
	}
	return m[size-n : size : size]
}

func guardedFrame(t testing.TB, f pipeline.Format) *pipeline.Frame {
	return &pipeline.Frame{Format: f, Bytes: guarded(t, f.Size())}
}
