// SPDX-License-Identifier: Apache-2.0

package tegrasim

import (
	"testing"

	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/tegratest"
)

func TestConformance(t *testing.T) {
	tegratest.Run(t, tegratest.Config{
		Open: func(t *testing.T) tegratest.Function {
			s, err := New(Config{Seed: 3, Attr: func(uintptr) (tegra.CacheAttr, bool) { return tegra.WriteBack, true }})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Unplug:     func(_ *testing.T, f tegratest.Function) { f.(*Sim).Unplug() },
		Invalidate: func(f tegratest.Function, addr uintptr, size int) { f.(*Sim).Invalidate(addr, size) },
	})
}
