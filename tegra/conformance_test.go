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
	invalidate func(addr uintptr, size int)
}

func TestDeviceConformance(t *testing.T) {
	tegratest.Run(t, tegratest.Config{
		Open: func(t *testing.T) tegratest.Function {
			d, invalidate, err := tegra.NewFake()
			if err != nil {
				t.Fatal(err)
			}
			return fake{d, invalidate}
		},
		Invalidate: func(f tegratest.Function, addr uintptr, size int) { f.(fake).invalidate(addr, size) },
	})
}
