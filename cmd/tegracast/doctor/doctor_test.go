// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/memlock"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/videodev"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// slot is the place of a card in the slot of a Jetson AGX Orin: behind its controller 5, 141a0000.pcie.
const (
	slot          = "sys/bus/pci/devices/0005:01:00.0/"
	slotPort      = "sys/bus/pci/devices/0005:00:00.0/"
	controllerDir = "sys/bus/platform/devices/141a0000.pcie/"
)

// orin is a fully equipped Jetson Orin, with its files as in Linux and Jetson Linux (board/board_test.go cites the
// sources). Its port is as lspci shows that of an Orin (linuxhw/LsPCI, NVIDIA Orin NX Developer Kit, 5.10.104-tegra). Its
// IOMMU group has the members that the log of an Orin with Jetson Linux 36.4.4 names: controller, port and function.
func orin() fstest.MapFS {
	link := func(target string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
	}
	root := fstest.MapFS{
		slot + "driver": link("../../../bus/pci/drivers/tegra_p2p"), "sys/bus/platform/drivers/tegra194-pcie/141a0000.pcie": link("../../devices/141a0000.pcie"),
		"sys/class/tegra_p2p/tegra_p2p0/device": link("../../../0005:01:00.0"),
	}
	for name, text := range map[string]string{
		"proc/device-tree/model":      "NVIDIA Jetson AGX Orin Developer Kit\x00",
		"proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0000\x00nvidia,p3701-0000\x00nvidia,tegra234\x00",
		memlock.DropIn[1:]:            "[Service]\nLimitMEMLOCK=15G\n",
		"etc/nv_tegra_release":        "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n",
		"proc/sys/kernel/osrelease":   "5.15.148-tegra\n", "lib/modules/5.15.148-tegra/build/Makefile": "", "lib/modules/5.15.148-tegra/updates/tegra_p2p.ko": "",
		"usr/src/nvidia/nvidia-oot/include/linux/nv-p2p.h": "", symvers: ofKernel, providerSymvers: ofProvider,
		"var/lib/dkms/tegra_p2p/1/source/dkms.conf": "", "var/lib/dkms/tegra_p2p/kernel-5.15.148-tegra-aarch64/module/tegra_p2p.ko": "",
		secureBoot:      "\x06\x00\x00\x00\x00",
		slot + "vendor": "0x10ee\n", slot + "device": "0x9038\n", slot + "class": "0x058000\n", slot + "config": space(0x48, 1, 32, 2, 1),
		slot + "current_link_width": "8\n", slot + "max_link_width": "8\n", slot + "current_link_speed": "16.0 GT/s PCIe\n", slot + "max_link_speed": "16.0 GT/s PCIe\n",
		slot + "link/l1_aspm": "0\n", slot + "link/clkpm": "0\n", slot + "aer_dev_correctable": "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0\n",
		slot + "resource":   "0x0000002b28000000 0x0000002b280fffff 0x0000000000040200\n0x0000002b28100000 0x0000002b2810ffff 0x0000000000040200\n" + strings.Repeat(noBAR, 5),
		slot + "msi_irqs/1": "msix\n", slot + "iommu_group/type": "DMA\n", slot + "iommu_group/devices/141a0000.pcie": "",
		slot + "iommu_group/devices/0005:00:00.0": "", slot + "iommu_group/devices/0005:01:00.0": "",
		slotPort + "vendor": "0x10de\n", slotPort + "device": "0x229a\n", slotPort + "class": "0x060400\n", slotPort + "secondary_bus_number": "1\n",
		slotPort + "config": space(0x50, 1, 8, 1, 1), slotPort + "current_link_width": "8\n", slotPort + "max_link_width": "8\n",
		slotPort + "current_link_speed": "16.0 GT/s PCIe\n", slotPort + "max_link_speed": "16.0 GT/s PCIe\n", slotPort + "aer_dev_correctable": "RxErr 0\nTOTAL_ERR_COR 0\n",
		controllerDir + "pci0005:00/uevent": "", controllerDir + "of_node/compatible": "nvidia,tegra234-pcie\x00", controllerDir + "of_node/iommu-map": "", controllerDir + "of_node/dma-coherent": "",
		"sys/module/tegra_p2p/parameters/allow_unsafe": "N\n",
		"dev/tegra_p2p0": "", "sys/class/tegra_p2p/tegra_p2p0/owners": "", "dev/gpiochip0": "", "dev/v4l2-nvenc": "",
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

// noBAR is the line of an unimplemented BAR.
const noBAR = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"

// space returns a configuration space with power management at 0x40, MSI at msi, MSI-X at 0x60 and PCI Express at 0x70,
// as in AMD's XDMA (lspci of mwrnd/innova2_xdma_opencapi). Payload sizes are exponents above 128 bytes: the supported and
// the current one. 0 vectors means no MSI-X.
func space(msi, messages, vectors, canPayload, payload int) string {
	c := make([]byte, 4096)
	c[0x34], c[0x40], c[0x41], c[msi], c[0x70] = 0x40, 1, byte(msi), capMSI, capExpress
	c[msi+1] = 0x70
	c[msi+2] = byte(messages-1) << 1 // 1 or 2
	if vectors > 0 {
		c[msi+1], c[0x60], c[0x61], c[0x62] = 0x60, capMSIX, 0x70, byte(vectors-1)
	}
	c[0x74], c[0x78], c[0x79] = byte(canPayload), byte(payload<<5), 2<<4
	return string(c)
}

// usesNVP2P has the flags of a device that pins through nv-p2p.
const usesNVP2P = uapi.InfoNVP2P | uapi.InfoNVP2PBuilt | uapi.InfoNVP2PPresent

// ofPatient returns a machine with these files, and with devices that have these flags.
func ofPatient(root fs.FS, flags uint32) patient {
	return patient{
		root: root, synchronised: func() bool { return true }, open: func(string) error { return nil },
		info: func(string) (uapi.Info, error) { return uapi.Info{Flags: flags, NIRQs: 4}, nil }, kernelLog: func() string { return "" },
		dumpVersions: func(string) (string, error) { return ofModule, nil },
		attempt:      func(library string) (string, error) { return "the release of " + library, nil },
		config:       func() (*config.Appliance, error) { return nil, fs.ErrNotExist },
		videos:       func() []videodev.Camera { return []videodev.Camera{{Path: "/dev/video0", Offers: []string{"RG10"}}} },
	}
}

// TestDoctor removes one thing after the other from a fully equipped machine.
func TestDoctor(t *testing.T) {
	commands := map[string]bool{}
	for _, tt := range []struct {
		name, file, text string // the new content; "-" removes the file
		what             string
		grade            grade
		says             string
	}{
		{"everything", "", "", "", isGood, ""},
		{"link", "", "", "FPGA", isGood, "0005:01:00.0: x8 of x8 lanes, 16 of 16 GT/s; its port 0005:00:00.0: x8, 16 GT/s; payload 256 of 512 bytes, reads of 512"},
		{"no Jetson Linux", "etc/nv_tegra_release", "-", "board", isWarning, "module p3701-0000"},
		{"Jetson Linux 32", "proc/sys/kernel/osrelease", "4.9.253-tegra\n", "kernel", isMissing, "needs 5.10"},
		{"no FPGA", slot + "vendor", "0x8086\n", "", isGood, ""}, // the driver identifies it
		{"narrow", slot + "current_link_width", "4\n", "FPGA", isWarning, "x4 of x8"},
		{"slow", slot + "current_link_speed", "2.5 GT/s PCIe\n", "FPGA", isWarning, "less than both ends can do"},
		{"another driver", slot + "driver", "../drivers/vfio-pci", "driver", isMissing, "driven by vfio-pci"},
		{"AMD's driver", slot + "driver", "../drivers/xdma", "driver", isMissing, "initramfs"},
		{"no driver", slot + "driver", "-", "driver", isMissing, "no driver"},
		{"module not installed", "sys/module/tegra_p2p/parameters/allow_unsafe", "-", "module", isMissing, "installed but not loaded"},
		{"unsafe", "sys/module/tegra_p2p/parameters/allow_unsafe", "Y\n", "module", isWarning, "allow_unsafe=1"},
		{"in use", "sys/class/tegra_p2p/tegra_p2p0/owners", "812 998\n", "device", isGood, "/dev/tegra_p2p0 is in use by pid 812"},
		{"no device", "dev/tegra_p2p0", "-", "device", isMissing, "/dev/tegra_p2p0"},
		{"no CUDA", "usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1", "-", "libcuda", isWarning, "host memory"},
		{"UCX", "usr/lib/aarch64-linux-gnu/libucp.so.0", "", "UCX", isGood, "/usr/lib/aarch64-linux-gnu/libucp.so.0, release the release of ucx"},
		{"libcufile", "usr/local/cuda/lib64/libcufile.so.0", "", "libcufile", isGood, "/usr/local/cuda/lib64/libcufile.so.0"},
		{"no libcufile", "", "", "libcufile", isNote, "not installed: recordings are written and read without it"},
		{"no UCX", "usr/lib/aarch64-linux-gnu/libucp.so.0", "-", "UCX", isNote, "not installed: nothing can be sent or received by UCX"},
		{"openh264 of JetPack 6", "usr/lib/aarch64-linux-gnu/libopenh264.so.6", "", "openh264", isGood, "libopenh264.so.6"},
		{"no openh264", "usr/lib/aarch64-linux-gnu/libopenh264.so.6", "-", "openh264", isNote, "nothing can be sent as H.264"},
		{"no openh264 on JetPack 5", "etc/os-release", "ID=ubuntu\nVERSION_ID=\"20.04\"\n", "openh264", isNote, "use the board's encoder"},
		{"encoder", "", "", "encoder", isGood, "the release of encoder answers: an output with encoder: "},
		{"no encoder", "dev/v4l2-nvenc", "-", "encoder", isNote, "as on Orin Nano"},
		{"no TurboJPEG", "etc/os-release", "ID=ubuntu\nVERSION_ID=\"22.04\"\n", "libjpeg-turbo", isNote, "several times as long"},
		{"little memory", "proc/self/limits", "Max locked memory         65536                65536                bytes\n", "memlock", isWarning, "64 KiB"},
		{"no drop-in", memlock.DropIn[1:], "-", "memlock", isGood, "the package's drop-in sets none for the service"},
		{"a drop-in", memlock.DropIn[1:], "[Service]\nLimitMEMLOCK=8G\n", "memlock", isGood, "the service 8192 MiB (LimitMEMLOCK= in " + memlock.DropIn + ")"},
		{"a low drop-in", memlock.DropIn[1:], "[Service]\nLimitMEMLOCK=8M\n", "memlock", isWarning, "the service 8 MiB"},
		{"a bad drop-in", memlock.DropIn[1:], "[Service]\nLimitMEMLOCK=half\n", "memlock", isWarning, memlock.DropIn + ":2: LimitMEMLOCK=half: must be"},
		{"short buffers", "proc/sys/net/core/wmem_max", "4194304\n", "sockets", isWarning, "wmem_max is 4194304"},
		{"no GPIO", "dev/gpiochip0", "-", "GPIO", isNote, "no GPIO"},
		{"slow mode", "etc/nvpmodel.conf", "< POWER_MODEL ID=0 NAME=MODE_15W >\n", "power mode", isWarning, "MODE_15W"},
		{"clocks", "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil\n", "clocks", isWarning, "schedutil"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := orin()
			if tt.text == "-" {
				delete(root, tt.file)
			} else if file := root[tt.file]; file != nil {
				file.Data = []byte(tt.text)
			} else if tt.file != "" {
				root[tt.file] = &fstest.MapFile{Data: []byte(tt.text)}
			}
			list := ofPatient(root, usesNVP2P|protected).examine()
			for _, x := range list {
				helps(t, x)
				commands[x.Command] = true
				if x.What != tt.what && (x.Grade == isMissing && tt.grade != isMissing || x.Grade == isWarning && tt.grade == isGood) {
					t.Errorf("%+v", x)
				}
			}
			expect(t, list, tt.what, tt.grade, tt.says)
		})
	}
	empty := ofPatient(fstest.MapFS{}, 0)
	empty.synchronised = func() bool { return false }
	for _, x := range empty.examine() {
		commands[x.Command] = true
	}
	delete(commands, "")
	if len(commands) < 10 {
		t.Errorf("only %d commands", len(commands))
	}
	for c := range commands {
		exists(t, c)
	}
}

// protected has the flags of a function behind a strict IOMMU of its own.
const protected = uapi.InfoIOMMU | uapi.InfoStrict | uapi.InfoCoherent

// helps checks that a problem comes with a command, or with words that say what to do.
func helps(t *testing.T, x finding) {
	t.Helper()
	says := func(word string) bool {
		return strings.Contains(x.Detail, word+" ")
	}
	if x.Command == "" && (x.Grade == isMissing || x.Grade == isWarning) && !slices.ContainsFunc([]string{"see", "use", "Use", "make", "Make", "flash", "Check", "boot"}, says) {
		t.Errorf("%s: nothing says what to do: %s", x.What, x.Detail)
	}
}

// expect checks a finding. With an empty name it checks nothing.
func expect(t *testing.T, list []finding, what string, g grade, says string) {
	t.Helper()
	if what == "" {
		return
	}
	if !slices.ContainsFunc(list, func(x finding) bool { return x.What == what && x.Grade == g && strings.Contains(x.Detail, says) }) {
		t.Errorf("%+v, want %s %s: %s", list, what, g, says)
	}
}

// elsewhere lists programs of Jetson Linux and Debian packages that this machine need not have.
var elsewhere = []string{"nvpmodel", "jetson_clocks", "tegrastats", "lspci", "timedatectl", "reboot", "sysctl", "modprobe", "journalctl", "dkms", "mokutil", "nvidia-modprobe", "scp", "systemctl", "udevadm", "tegracast"}

// exists checks that a command is valid: bash can parse it, and its programs are known.
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

// TestWhoFixes checks that other users than root are told that the commands are for root.
func TestWhoFixes(t *testing.T) {
	for uid, want := range map[int]string{0: "fix: ", 65534: "fix, as root: "} {
		if got := remedy(uid); got != want {
			t.Errorf("user %d: %q, want %q", uid, got, want)
		}
	}
}

// TestForeignNames checks that names from a device or a file cannot move the cursor.
func TestForeignNames(t *testing.T) {
	var out strings.Builder
	list := []finding{{What: "board", Detail: "a\x1b[2Jboard", Command: "modprobe \x1b[2J"}}
	if err := tellFindings(terminal.Env{Out: &out}, list, false, false); err != nil || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q, %v", out.String(), err)
	}
}
