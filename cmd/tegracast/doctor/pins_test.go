// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// TestDoctorPins checks that doctor gives the reason and a remedy if CUDA needs nv-p2p and the module does not use it,
// and that pin_user_pages is good where CUDA does not need it.
func TestDoctorPins(t *testing.T) {
	const (
		orin36 = "tegra234-p3737-0000+p3701-0000"
		orin39 = "Orin with Jetson Linux 39"
		xavier = "tegra194-p2972-0000"
		thor   = "tegra264-p3971-0089+p3834-0008"
		debian = "no Jetson"
		bare   = "Orin without CUDA"
		built  = uapi.InfoNVP2PBuilt
	)
	all := boards()
	all[orin39] = map[string]string{"etc/nv_tegra_release": "# R39 (release), REVISION: 0.0, GCID: 1, BOARD: generic, EABI: aarch64\n"}
	all[bare] = map[string]string{"usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1": "-"}
	all[debian] = map[string]string{"proc/device-tree/model": "-", "proc/device-tree/compatible": "-", "etc/nv_tegra_release": "-"}
	for _, tt := range []struct {
		board   string
		flags   uint32
		grade   grade
		says    string
		command string // a part of it
	}{
		{orin36, usesNVP2P, isGood, "/dev/tegra_p2p0 pins through nv-p2p", ""},
		{orin36, 0, isWarning, "pin_user_pages; nv-p2p is not compiled into the module", "--reinstall ./tegracast-dkms"},
		{orin36, built, isWarning, "no provider was loaded before the module", "modprobe nvidia-p2p; modprobe tegra_p2p"},
		{orin36, built | uapi.InfoNVP2PPresent, isWarning, "loaded and not used: the module has backend=gup", "backend=auto"},
		{orin36, built | uapi.InfoNVP2PForeign, isNote, "the desktop driver's", ""},
		{xavier, built, isWarning, "no provider", "modprobe nvidia-p2p"},
		{orin39, built, isGood, "pins through pin_user_pages; nv-p2p is compiled in, and no provider was loaded before the module", ""},
		{orin39, usesNVP2P, isGood, "pins through nv-p2p", ""},
		{bare, usesNVP2P, isWarning, "frames are in the program's own memory", "backend=gup"},
		{thor, built, isGood, "no provider", ""},
		{thor, built | uapi.InfoNVP2PForeign, isNote, "the desktop driver's", ""},
		{debian, 0, isGood, "nv-p2p is not compiled into the module", ""},
	} {
		var got []finding
		for _, x := range ofPatient(fixture(all[tt.board]), tt.flags).examine() {
			if x.What == "pinning" {
				got = append(got, x)
			}
		}
		if len(got) != 1 || got[0].Grade != tt.grade || !strings.Contains(got[0].Detail, tt.says) ||
			!strings.Contains(got[0].Command, tt.command) || (got[0].Command == "") != (tt.command == "") {
			t.Errorf("%s with flags %#x: %+v, want %s: %s, and %q", tt.board, tt.flags, got, tt.grade, tt.says, tt.command)
			continue
		}
		if got[0].Command != "" {
			exists(t, got[0].Command)
		}
	}
	silent := ofPatient(orin(), 0)
	silent.info = func(string) (uapi.Info, error) { return uapi.Info{}, errors.New("busy") }
	if list := silent.pinning(); list != nil {
		t.Errorf("a device that does not answer: %+v", list)
	}
}
