// SPDX-License-Identifier: Apache-2.0

package tegra_test

import (
	"testing"

	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/tegratest"
)

// fake is a Device over a module in the process. What it does over the real one is tested in the virtual Jetson.
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

// TestFakeForbidsWhatTheModuleForbids: the stand-in under the other tests of this package is as strict as the module.
func TestFakeForbidsWhatTheModuleForbids(t *testing.T) {
	tegratest.RunCalls(t, func(t *testing.T, readOnly bool) tegratest.Calls {
		c, err := tegra.NewFakeCalls(readOnly)
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
}
