// SPDX-License-Identifier: Apache-2.0

package device

import (
	"testing"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/tegra/uapi"
)

func TestPinWarning(t *testing.T) {
	old, able := &cudahost.CUDA{Device: &cudahost.Device{}}, &cudahost.CUDA{Device: &cudahost.Device{GPUDirectRDMA: true}}
	host, err := cudahost.Open(cudahost.Config{Backend: "host"})
	if err != nil {
		t.Fatal(err)
	}
	nvp2p, gup := uapi.Info{Flags: uapi.InfoNVP2P}, uapi.Info{}
	for _, tt := range []struct {
		name   string
		memory cudahost.Allocator
		info   uapi.Info
		warned bool
	}{
		{"nv-p2p and a driver that says no", old, nvp2p, true},
		{"nv-p2p and a driver that says yes", able, nvp2p, false},
		{"nv-p2p, no CUDA", host, nvp2p, false},
		{"pin_user_pages", old, gup, false},
	} {
		if w := pinWarning(tt.memory, tt.info); (w != "") != tt.warned {
			t.Errorf("%s: %q", tt.name, w)
		}
	}
}
