package main

import (
	"encoding/json"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"tegracast/tegra/uapi"
)

// orin is a Jetson Orin with everything: its files as Linux and Jetson Linux have them (board/board_test.go cites whence).
func orin() fstest.MapFS {
	const function = "sys/bus/pci/devices/0001:01:00.0/"
	config := make([]byte, 4096)
	config[0x34], config[0x40], config[0x41], config[0x70] = 0x40, 1, 0x70, 0x10 // power management, then PCI Express
	config[0x74], config[0x78] = 2, 1<<5                                         // 512 bytes, set to 256
	root := fstest.MapFS{function + "driver": &fstest.MapFile{Data: []byte("../../../bus/pci/drivers/tegra_p2p"), Mode: fs.ModeSymlink}}
	for name, text := range map[string]string{
		"proc/device-tree/model":      "NVIDIA Jetson AGX Orin Developer Kit\x00",
		"proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0000\x00nvidia,p3701-0000\x00nvidia,tegra234\x00",
		"etc/nv_tegra_release":        "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n",
		function + "vendor":           "0x10ee\n", function + "device": "0x9038\n", function + "config": string(config),
		function + "current_link_width": "8\n", function + "max_link_width": "8\n",
		function + "current_link_speed": "16.0 GT/s PCIe\n", function + "max_link_speed": "16.0 GT/s PCIe\n",
		function + "iommu_group/type":                  "DMA\n",
		"sys/module/tegra_p2p/parameters/allow_unsafe": "N\n",
		"dev/tegra_p2p0":                               "", "dev/gpiochip0": "",
		"usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1": "", "usr/local/cuda/lib64/libnvrtc.so.12": "", "usr/local/cuda/lib64/libnvjpeg.so.12": "",
		"proc/self/limits":           "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         unlimited            unlimited            bytes     \n",
		"proc/sys/net/core/wmem_max": "8388608\n", "proc/sys/net/core/rmem_max": "8388608\n",
		"var/lib/nvpmodel/status": "pmode:0000 fmode:quiet\n", "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=MAXN >\n",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
	} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

// usesNVP2P are the flags of a device that pins through nv-p2p.
const usesNVP2P = uapi.InfoNVP2P | uapi.InfoNVP2PBuilt | uapi.InfoNVP2PPresent

// ofPatient is a machine with these files, and devices with these flags.
func ofPatient(root fs.FS, flags uint32) patient {
	return patient{
		root: root, synchronised: func() bool { return true }, open: func(string) error { return nil },
		info: func(string) (uapi.Info, error) { return uapi.Info{Flags: flags}, nil },
	}
}

// TestDoctor takes one thing after the other away from a machine that has everything.
func TestDoctor(t *testing.T) {
	const function = "sys/bus/pci/devices/0001:01:00.0/"
	commands := map[string]bool{}
	for _, tt := range []struct {
		name, file, text string // replaced; "-" removes it
		what             string
		grade            grade
		says             string
	}{
		{"everything", "", "", "", isGood, ""},
		{"link", "", "", "FPGA", isGood, "0001:01:00.0: x8 of x8 lanes, 16.0 GT/s PCIe of 16.0 GT/s PCIe, payload 256 of 512 bytes"},
		{"no Jetson Linux", "etc/nv_tegra_release", "-", "board", isWarning, "module p3701-0000"},
		{"no FPGA", function + "vendor", "0x8086\n", "", isGood, ""}, // the driver says that it is one
		{"narrow", function + "current_link_width", "4\n", "FPGA", isWarning, "x4 of x8"},
		{"slow", function + "current_link_speed", "2.5 GT/s PCIe\n", "FPGA", isWarning, "less than it can do"},
		{"another driver", function + "driver", "../drivers/xdma", "driver", isMissing, "driven by xdma"},
		{"no driver", function + "driver", "-", "driver", isMissing, "no driver"},
		{"lazy IOMMU", function + "iommu_group/type", "DMA-FQ\n", "IOMMU", isMissing, "lazy"},
		{"no IOMMU", function + "iommu_group/type", "-", "IOMMU", isMissing, "no IOMMU"},
		{"module not installed", "sys/module/tegra_p2p/parameters/allow_unsafe", "-", "module", isMissing, "not installed"},
		{"unsafe", "sys/module/tegra_p2p/parameters/allow_unsafe", "Y\n", "module", isWarning, "allow_unsafe=1"},
		{"no device", "dev/tegra_p2p0", "-", "device", isMissing, "/dev/tegra_p2p0"},
		{"no CUDA", "usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1", "-", "libcuda", isWarning, "host memory"},
		{"little memory", "proc/self/limits", "Max locked memory         65536                65536                bytes\n", "memlock", isWarning, "64 KiB"},
		{"short buffers", "proc/sys/net/core/wmem_max", "212992\n", "sockets", isWarning, "wmem_max is 212992"},
		{"no GPIO", "dev/gpiochip0", "-", "GPIO", isNote, "no GPIO"},
		{"slow mode", "etc/nvpmodel.conf", "< POWER_MODEL ID=0 NAME=MODE_15W >\n", "power mode", isWarning, "MODE_15W"},
		{"clocks", "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil\n", "clocks", isWarning, "schedutil"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := orin()
			if tt.text == "-" {
				delete(root, tt.file)
			} else if tt.file != "" {
				root[tt.file].Data = []byte(tt.text)
			}
			list := ofPatient(root, usesNVP2P).examine()
			for _, x := range list {
				if x.Command != "" {
					commands[x.Command] = true
				} else if x.Grade == isMissing || x.Grade == isWarning {
					t.Errorf("%s: no command mends it", x.What)
				}
				if x.What != tt.what && (x.Grade == isMissing && tt.grade != isMissing || x.Grade == isWarning && tt.grade == isGood) {
					t.Errorf("%+v", x)
				}
			}
			i := slices.IndexFunc(list, func(x finding) bool { return x.What == tt.what && x.Grade == tt.grade })
			if tt.what != "" && (i < 0 || !strings.Contains(list[i].Detail, tt.says)) {
				t.Errorf("%+v, want %s %s: %s", list, tt.what, tt.grade, tt.says)
			}
		})
	}
	empty := ofPatient(fstest.MapFS{}, 0)
	empty.synchronised = func() bool { return false }
	for _, x := range empty.examine() {
		commands[x.Command] = true
	}
	delete(commands, "")
	for c := range commands {
		exists(t, c)
	}
}

// elsewhere are programs of Jetson Linux and of Debian packages that this machine need not have.
var elsewhere = []string{"nvpmodel", "jetson_clocks", "tegrastats", "lspci", "timedatectl", "reboot", "sysctl", "modprobe", "journalctl", "tegracast"}

// exists checks that a command is one: bash can read it, and its programs are known.
func exists(t *testing.T, line string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "bash", "-n", "-c", line).CombinedOutput(); err != nil {
		t.Errorf("%s: %v %s", line, err, out)
	}
	for part := range strings.SplitSeq(line, ";") {
		name := strings.Fields(part)[0]
		kind, _ := exec.CommandContext(t.Context(), "bash", "-c", "type -t "+name).Output()
		if len(kind) == 0 && !slices.Contains(elsewhere, name) {
			t.Errorf("%s: there is no %s", line, name)
		}
	}
}

// TestDoctorHere: on a machine without an FPGA it says so, with status 1.
func TestDoctorHere(t *testing.T) {
	status, out, errw := runs(t, "doctor", "--json")
	var got struct {
		Ready    bool
		Findings []finding
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || errw != "" {
		t.Fatalf("%v %s\n%s", err, errw, out)
	}
	if got.Ready != (status == exitOK) || len(got.Findings) < 8 {
		t.Errorf("status %d, ready %v, %d findings", status, got.Ready, len(got.Findings))
	}
	if _, text, _ := runs(t, "doctor"); !strings.Contains(text, "camera of a real FPGA") {
		t.Error(text)
	}
}
