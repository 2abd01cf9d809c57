package vjetson

import (
	"testing"
)

// StartTest boots a machine for a test, which fails when the machine cannot be had, and closes it at its end: a kernel
// fault that the test did not expect fails it, with the fault.
func StartTest(t testing.TB, cfg Config) *Machine {
	t.Helper()
	m, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
			t.Log(m.log.aroundFaults())
		}
	})
	return m
}
