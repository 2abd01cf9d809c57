// SPDX-License-Identifier: Apache-2.0

package tegra_test

import (
	"testing"

	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/tegratest"
)

// fake is a Device on a simulated module. Its behaviour on the real one is tested in the virtual Jetson.
type fake struct {
	*tegra.Device
	module tegra.Fake
}

func TestDeviceConformance(t *testing.T) {
	tegratest.Run(t, tegratest.Config{
		Open: func(t *testing.T) tegratest.Function {
			d, m, err := tegra.NewFake()
			if err != nil {
				t.Fatal(err)
			}
			return fake{d, m}
		},
		Unplug:     func(_ *testing.T, f tegratest.Function) { f.(fake).module.Unplug() },
		Invalidate: func(f tegratest.Function, addr uintptr, size int) { f.(fake).module.Invalidate(addr, size) },
	})
}

// TestFakeForbidsWhatTheModuleForbids checks that the simulated module used by the other tests of this package is as
// strict as the real one.
func TestFakeForbidsWhatTheModuleForbids(t *testing.T) {
	tegratest.RunCalls(t, func(t *testing.T, readOnly bool) tegratest.Calls {
		c, err := tegra.NewFakeCalls(readOnly)
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
}
