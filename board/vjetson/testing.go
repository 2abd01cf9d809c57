// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"errors"
	"testing"
)

// StartTest boots a machine for a test, and closes it at the test's end. The test fails if the machine cannot be started,
// or if there is an unexpected kernel fault, which it shows. A machine with functions needs more packages from Debian's
// archive: if these are not in the cache and the archive cannot be reached, the test is skipped.
func StartTest(t testing.TB, cfg Config) *Machine {
	t.Helper()
	cfg.temporary = true
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
