// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// boards lists fully equipped Jetsons by their differences from orin(). Models and compatible properties are those of
// Linux, arch/arm64/boot/dts/nvidia (the file in front). Thor's are from a real board (rbonghi/jetson_stats issue 779).
// The driver's library is in tegra up to Jetson Linux 35 (NVIDIA/nvidia-docker issue 1775 lists it there), and in nvidia
// since 36. CUDA's libraries have the names of CUDA 11.4, 12 and 13, the latest ones for Xavier, Orin and Thor.
func boards() map[string]map[string]string {
	const (
		driver = "usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1"
		nvrtc  = "usr/local/cuda/lib64/libnvrtc.so.12"
		jpeg   = "usr/local/cuda/lib64/libnvjpeg.so.12"
		old    = "usr/local/cuda-11.4/targets/aarch64-linux/lib/"
		r35    = "# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref, EABI: aarch64, DATE: Tue Aug  1 19:57:35 UTC 2023\n"
	)
	xavier := func(model, compatible string) map[string]string {
		return map[string]string{
			"proc/device-tree/model": model + "\x00", "proc/device-tree/compatible": compatible + "\x00nvidia,tegra194\x00", "etc/nv_tegra_release": r35,
			driver: "-", nvrtc: "-", jpeg: "-",
			"usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1": "", old + "libnvrtc.so.11.2": "", old + "libnvjpeg.so.11": "",
		}
	}
	family := func(model, compatible string) map[string]string {
		return map[string]string{"proc/device-tree/model": model + "\x00", "proc/device-tree/compatible": compatible + "\x00nvidia,tegra234\x00"}
	}
	return map[string]map[string]string{
		"tegra194-p2972-0000":            xavier("NVIDIA Jetson AGX Xavier Developer Kit", "nvidia,p2972-0000"),
		"tegra194-p3509-0000+p3668-0000": xavier("NVIDIA Jetson Xavier NX Developer Kit (SD-card)", "nvidia,p3509-0000+p3668-0000"),
		"tegra194-p3509-0000+p3668-0001": xavier("NVIDIA Jetson Xavier NX Developer Kit (eMMC)", "nvidia,p3509-0000+p3668-0001"),
		"tegra234-p3737-0000+p3701-0000": family("NVIDIA Jetson AGX Orin Developer Kit", "nvidia,p3737-0000+p3701-0000\x00nvidia,p3701-0000"),
		"tegra234-p3740-0002+p3701-0008": family("NVIDIA IGX Orin Development Kit", "nvidia,p3740-0002+p3701-0008\x00nvidia,p3701-0008"),
		"tegra234-p3768-0000+p3767-0000": family("NVIDIA Jetson Orin NX Engineering Reference Developer Kit", "nvidia,p3768-0000+p3767-0000\x00nvidia,p3767-0000"),
		"tegra234-p3768-0000+p3767-0005": family("NVIDIA Jetson Orin Nano Developer Kit", "nvidia,p3768-0000+p3767-0005\x00nvidia,p3767-0005"),
		"tegra264-p3971-0089+p3834-0008": {
			"proc/device-tree/model":      "NVIDIA Jetson AGX Thor Developer Kit\x00",
			"proc/device-tree/compatible": "nvidia,p3971-0089+p3834-0008\x00nvidia,p3834-0008\x00nvidia,tegra264\x00",
			"etc/nv_tegra_release":        "# R38 (release), REVISION: 2.1, BOARD: generic, EABI: aarch64\n",
			nvrtc:                         "-", jpeg: "-",
			"usr/local/cuda-13.0/targets/sbsa-linux/lib/libnvrtc.so.13": "", "usr/local/cuda-13.0/targets/sbsa-linux/lib/libnvjpeg.so.13": "",
		},
	}
}

// fixture returns a fully equipped board with changes.
func fixture(changes map[string]string) fstest.MapFS {
	root := orin()
	for name, text := range changes {
		if text == "-" {
			delete(root, name)
		} else {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return root
}

// TestDoctorBoards checks that nothing is missing on any fully equipped board, and that doctor reports missing CUDA or a
// missing module, with commands that exist.
func TestDoctorBoards(t *testing.T) {
	for name, changes := range boards() {
		t.Run(name, func(t *testing.T) {
			root := fixture(changes)
			flags := map[bool]uint32{true: uapi.InfoNVP2PBuilt, false: usesNVP2P}[strings.HasPrefix(name, "tegra264")] // Thor has no provider
			p := ofPatient(root, flags|protected)
			list := p.examine()
			soc, module, _ := strings.Cut(name, "-")
			module = module[strings.LastIndex(module, "+")+1:]
			family := map[string]string{"tegra194": "(Xavier, ", "tegra234": "(Orin, ", "tegra264": "(Thor, "}[soc]
			if d := list[0].Detail; !strings.Contains(d, family+"module "+module+")") || !strings.Contains(d, "Jetson Linux 3") {
				t.Errorf("the board is %s", d)
			}
			for _, x := range list {
				if x.Grade == isMissing || x.Grade == isWarning {
					t.Errorf("%+v", x)
				}
			}
			bare := 0
			for file := range root {
				if strings.Contains(file, "libcuda") || strings.Contains(file, "libnv") || strings.HasPrefix(file, "sys/module/tegra_p2p") {
					delete(root, file)
				}
			}
			for _, x := range p.examine() {
				if x.Grade == isMissing || x.Grade == isWarning {
					bare++
					helps(t, x)
					if x.Command != "" {
						exists(t, x.Command)
					}
				}
			}
			want := 4
			if flags&uapi.InfoNVP2P != 0 { // then movable memory is pinned through it
				want++
			}
			if bare != want {
				t.Errorf("without CUDA's three libraries and the module %d findings, want %d", bare, want)
			}
		})
	}
}
