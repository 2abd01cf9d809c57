// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"errors"
	"testing"
)

// StartTest boots a machine for a test, which fails when the machine cannot be had, and closes it at its end: a kernel
// fault that the test did not expect fails it, with the fault. A machine with functions needs more from Debian's archive
// than any other: where that is out of reach, and the cache does not have it, the test is skipped.
func StartTest(t testing.TB, cfg Config) *Machine {
	t.Helper()
	m, err := Start(t.Context(), cfg)
	if errors.Is(err, ErrUnreachable) && len(cfg.Functions) > 0 {
		t.Skipf("NEEDS a newer QEMU and the source of the kernel, each once, from Debian's archive: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Functions) > 0 {
		t.Log("QEMU", m.cfg.qemuVersion)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
			t.Log(m.log.aroundFaults())
		}
	})
	return m
}
