// SPDX-License-Identifier: Apache-2.0

package tegratest

import (
	"flag"
	"testing"

	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// TestDevice needs a function that the kernel module drives. The test of cmd/tegracast runs this one in the virtual Jetson.
func TestDevice(t *testing.T) {
	path := *devicePath
	if path == "" {
		t.Skip("NEEDS a device of the kernel module tegra_p2p: go test ./tegra/tegratest -args -device /dev/tegra_p2p0")
	}
	d, err := tegra.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	nvp2p := d.Info().Flags&uapi.InfoNVP2P != 0
	t.Logf("%+v", d.Info())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	Run(t, Config{FirstPage: nvp2p, Open: func(t *testing.T) Function {
		d, err := tegra.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if generation, fenced := d.Fenced(); fenced { // by who closed it with memory left
			if err := d.Resume(generation); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}})
}

var devicePath = flag.String("device", "", "device file of the kernel module")
