// SPDX-License-Identifier: Apache-2.0

package tegra

import "testing"

// BenchmarkWindow measures the cost of a register access without the bus: the BAR is memory here.
func BenchmarkWindow(b *testing.B) {
	m, err := newFakeModule()
	if err != nil {
		b.Fatal(err)
	}
	d, err := newDevice("fake", m)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	w := d.BARs()[0]
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.Read32(64)
		}
	})
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.Write32(64, 1)
		}
	})
}

// BenchmarkInterrupt measures the path from the module's signal to Wait: eventfd, poller, goroutine.
func BenchmarkInterrupt(b *testing.B) {
	m, err := newFakeModule()
	if err != nil {
		b.Fatal(err)
	}
	d, err := newDevice("fake", m)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	b.ReportAllocs()
	for b.Loop() {
		m.signal(0, 1)
		if err := d.Wait(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
	}
}
