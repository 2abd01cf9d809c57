// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// changed returns a fully equipped Orin with some files changed: "-" removes one, a text that begins with "->" is a link.
func changed(files map[string]string) fstest.MapFS {
	root := orin()
	for name, text := range files {
		delete(root, name)
		if target, link := strings.CutPrefix(text, "-> "); link {
			root[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
		} else if text != "-" {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return root
}

// A trial is a machine with one difference, and the expected finding.
type trial struct {
	name  string
	files map[string]string
	what  string
	grade grade
	says  string
}

func (tt trial) run(t *testing.T, change func(p *patient)) {
	t.Run(tt.name, func(t *testing.T) {
		p := ofPatient(changed(tt.files), usesNVP2P|protected)
		if change != nil {
			change(&p)
		}
		list := p.examine()
		expect(t, list, tt.what, tt.grade, tt.says)
		for _, x := range list {
			helps(t, x)
			if x.Command != "" {
				exists(t, x.Command)
			}
		}
	})
}

// TestDoctorLink covers the link by both its ends. The port that supports 16 GT/s and runs at 8 for an SSD is that of
// linuxhw/LsPCI, NVIDIA Orin NX Developer Kit. The XDMA that an AGX Orin trained to one of four lanes is from a user's
// report: xc7z100, 10ee:7024, lanes reversed on the carrier.
func TestDoctorLink(t *testing.T) {
	for _, tt := range []trial{
		{"a port that can do more", map[string]string{
			slot + "max_link_speed": "8.0 GT/s PCIe\n", slot + "current_link_speed": "8.0 GT/s PCIe\n", slotPort + "current_link_speed": "8.0 GT/s PCIe\n",
		}, "FPGA", isGood, "8 of 8 GT/s; its port 0005:00:00.0: x8, 16 GT/s"},
		{"one lane of four", map[string]string{
			slot + "max_link_speed": "5.0 GT/s PCIe\n", slot + "current_link_speed": "5.0 GT/s PCIe\n", slot + "max_link_width": "4\n", slot + "current_link_width": "1\n",
		}, "FPGA", isWarning, "x1 of x4 lanes, 5 of 5 GT/s; its port 0005:00:00.0: x8, 16 GT/s: less than both ends can do"},
		{"the port is the limit", map[string]string{
			slot + "current_link_width": "4\n", slotPort + "max_link_width": "4\n",
		}, "FPGA", isNote, "x4 of x8 lanes, 16 of 16 GT/s; its port 0005:00:00.0: x4, 16 GT/s: the port is the limit"},
		{"small packets", map[string]string{slot + "config": space(0x48, 1, 32, 2, 0)}, "FPGA", isGood, "payload 128 of 512 bytes, reads of 512 (the port can do 256: pci=pcie_bus_perf"},
		{"no link", map[string]string{slot + "current_link_width": "0\n"}, "FPGA", isNote, "has no PCI Express link"},
		{"not root", map[string]string{slot + "config": space(0x48, 1, 32, 2, 1)[:64]}, "FPGA", isGood, "x8, 16 GT/s"},
		{"L1 by sysfs", map[string]string{slot + "link/l1_aspm": "1\n"}, "ASPM", isWarning, "saves power (l1_aspm)"},
		{"L0s and L1 by Link Control", map[string]string{
			slot + "link/l1_aspm": "-", slot + "link/clkpm": "-", slot + "config": withByte(space(0x48, 1, 32, 2, 1), 0x80, 3),
		}, "ASPM", isWarning, "saves power (L0s, L1)"},
		{"nobody may know", map[string]string{slot + "link/l1_aspm": "-", slot + "link/clkpm": "-", slot + "config": "-"}, "ASPM", isNote, "not checked"},
		{"errors of the link", map[string]string{slot + "aer_dev_correctable": "Receiver Error 2\nBad TLP 0\nReplay Timer Timeout 7\nTOTAL_ERR_COR 9\n"}, "link errors", isWarning, "0005:01:00.0 correctable Receiver Error 2, 0005:01:00.0 correctable Replay Timer Timeout 7"},
		{"errors that the port counted", map[string]string{slotPort + "aer_dev_fatal": "SDES 1\nMalfTLP 1\nTOTAL_ERR_FATAL 1\n"}, "link errors", isWarning, "0005:00:00.0 fatal SDES 1, 0005:00:00.0 fatal MalfTLP 1"},
		{"no AER", map[string]string{slot + "aer_dev_correctable": "-", slotPort + "aer_dev_correctable": "-"}, "link errors", isNote, "not checked"},
	} {
		tt.run(t, nil)
	}
}

func withByte(config string, at int, value byte) string {
	b := []byte(config)
	b[at] |= value
	return string(b)
}

// noRoom has the messages of Linux 6.10 and later about a BAR that fits nowhere, and those of 5.15 (the wording is from
// two reports on linux-pci; sizes and places are those of an Orin).
const noRoom = `<6>[    9.1] pci 0005:01:00.0: BAR 0 [mem size 0x10000000]: can't assign; no space
<6>[    9.1] pci 0005:01:00.0: BAR 0 [mem size 0x10000000]: failed to assign
<6>[    9.1] pci 0005:01:00.0: VF BAR 2 [mem size 0x02000000 64bit pref]: can't assign; no space
<6>[    9.2] pci 0005:01:00.0: BAR 1 [mem size 0x00010000]: can't assign; no space
<6>[    9.3] pci 0005:01:00.0: BAR 1 [mem 0x2b28000000-0x2b2800ffff]: assigned
<6>[    9.3] pci 0004:01:00.0: BAR 4 [mem size 0x00100000]: failed to assign
`

// TestDoctorBARs covers BARs and interrupts.
func TestDoctorBARs(t *testing.T) {
	for _, tt := range []trial{
		{"two", nil, "BARs", isGood, "0005:01:00.0: BAR 0 1 MiB, BAR 1 64 KiB"},
		{"prefetchable", map[string]string{slot + "resource": noBAR + noBAR + "0x0000002800000000 0x00000029ffffffff 0x000000000014220c\n"}, "BARs", isGood, "BAR 2 8 GiB 64-bit prefetchable"},
		{"unset", map[string]string{slot + "resource": "0x0000000000000000 0x000000000fffffff 0x0000000020040200\n"}, "BARs", isMissing, "no addresses for BAR 0 256 MiB: make it smaller"},
		{"none", map[string]string{slot + "resource": strings.Repeat(noBAR, 6)}, "BARs", isMissing, "no memory BAR"},
		{"not readable", map[string]string{slot + "resource": "-"}, "BARs", isNote, "not checked"},
		{"four vectors", nil, "interrupts", isGood, "0005:01:00.0: 4 in use: the function offers MSI-X 32, MSI 1"},
	} {
		tt.run(t, nil)
	}
	for _, tt := range []trial{
		{"forgotten", map[string]string{slot + "resource": strings.Repeat(noBAR, 6)}, "BARs", isMissing, "no addresses for BAR 0 256 MiB: make"},
		{"one vector by sysfs", map[string]string{slot + "config": space(0x48, 2, 0, 2, 1)}, "interrupts", isGood, "1 in use: the function offers MSI 2"},
		{"none in use", map[string]string{slot + "msi_irqs/1": "-"}, "interrupts", isWarning, "polled"},
		{"no driver", map[string]string{slot + "msi_irqs/1": "-", slot + "driver": "-"}, "interrupts", isNote, "not checked"},
	} {
		tt.run(t, func(p *patient) {
			p.kernelLog = func() string { return noRoom }
			p.info = func(string) (uapi.Info, error) { return uapi.Info{}, errors.New("busy") }
		})
	}
	old := "[    9.2] pci 0005:01:00.0: BAR 2: no space for [mem size 0x10000000 64bit]\n[    9.2] pci 0005:01:00.0: BAR 2: failed to assign [mem size 0x10000000 64bit]\n"
	if got := withoutRoom(old+"[    9.3] pci 0005:01:00.0: BAR 0: assigned [mem 0x2b28000000-0x2b280fffff]\n", "0005:01:00.0"); len(got) != 1 || got[0].index != 2 || got[0].size != 256<<20 {
		t.Errorf("Linux 5.15: %v", got)
	}
}

// TestDoctorIOMMU covers what restricts the function's accesses, as reported by the module if it answers. The group with
// the SSD has the members that an Orin's log names for its controller 4 (Jetson Linux 36.4.4), and an FPGA.
func TestDoctorIOMMU(t *testing.T) {
	info := func(flags uint32, err error) func(*patient) {
		return func(p *patient) {
			p.info = func(string) (uapi.Info, error) { return uapi.Info{Flags: flags}, err }
		}
	}
	unsafe := info(uapi.InfoIOMMU|uapi.InfoUnsafe, nil)
	refused := info(0, unix.EPERM)
	silent := info(0, unix.EACCES)
	kind := func(k string) map[string]string { return map[string]string{slot + "iommu_group/type": k + "\n"} }
	ssd := map[string]string{
		slot + "iommu_group/devices/0005:04:00.0": "", "sys/bus/pci/devices/0005:04:00.0/class": "0x010802\n", "sys/bus/pci/devices/0005:02:00.0/class": "0x060400\n",
		slot + "iommu_group/devices/0005:02:00.0": "",
	}
	for _, tt := range []struct {
		trial
		change func(*patient)
	}{
		{trial{"strict", nil, "IOMMU", isGood, "the module says so"}, nil},
		{trial{"alone", map[string]string{slot + "iommu_group": "-"}, "IOMMU group", isGood, "0005:01:00.0 is the only function in group"}, nil},
		{trial{"not asked", nil, "IOMMU", isGood, "by the type of its group"}, silent},
		{trial{"refused on Linux 5.15", nil, "IOMMU", isMissing, "the module does not call it protected; see journalctl"}, refused},
		{trial{"lazy on Linux 5.10", map[string]string{"proc/sys/kernel/osrelease": "5.10.216-tegra\n"}, "IOMMU", isMissing, "before Linux 5.15 lazy domains have that type, too"}, refused},
		{trial{"lazy, and permitted", map[string]string{"proc/sys/kernel/osrelease": "5.10.216-tegra\n", "sys/module/tegra_p2p/parameters/allow_unsafe": "Y\n"}, "IOMMU", isWarning, "allow_unsafe=1 permits it"}, unsafe},
		{trial{"lazy", kind("DMA-FQ"), "IOMMU", isMissing, "lazy"}, refused},
		{trial{"identity", kind("identity"), "IOMMU", isMissing, "translates nothing"}, refused},
		{trial{"none", kind(""), "IOMMU", isMissing, "no IOMMU"}, refused},
		{trial{"extlinux", map[string]string{slot + "iommu_group/type": "DMA-FQ\n", "boot/extlinux/extlinux.conf": ""}, "IOMMU", isMissing, "add iommu.passthrough=0 iommu.strict=1 to the kernel's command line"}, refused},
		{trial{"ATS", nil, "IOMMU", isMissing, "not protected"}, info(uapi.InfoStrict|uapi.InfoUnsafe, nil)},
		{trial{"no iommu-map", map[string]string{controllerDir + "of_node/iommu-map": "-"}, "IOMMU", isMissing, "141a0000.pcie lacks iommu-map, and no parameter"}, refused},
		{trial{"not coherent", map[string]string{controllerDir + "of_node/iommu-map": "-", controllerDir + "of_node/dma-coherent": "-"}, "IOMMU", isMissing, "lacks iommu-map and dma-coherent"}, refused},
		{trial{"SSD behind a switch", ssd, "IOMMU group", isMissing, "0005:01:00.0 shares group with 0005:04:00.0, an NVMe SSD: tegra_p2p does not call it protected. Use a slot"}, refused},
		{trial{"one alarm is enough", ssd, "IOMMU", isNote, "not checked: it shares its group"}, refused},
		{trial{"two functions", map[string]string{slot + "iommu_group/devices/0005:01:00.1": ""}, "IOMMU group", isMissing, "0005:01:00.1, another function of the card: tegra_p2p does not call it protected. Make"}, refused},
		{trial{"no members", map[string]string{
			slot + "iommu_group/devices/141a0000.pcie": "-", slot + "iommu_group/devices/0005:00:00.0": "-", slot + "iommu_group/devices/0005:01:00.0": "-",
		}, "IOMMU group", isNote, "not checked"}, silent},
	} {
		tt.run(t, tt.change)
	}
}

// TestDoctorNoFPGA covers a Jetson's controller that had no link at boot. It is switched off, and its driver stays bound
// (pcie-tegra194.c, tegra_pcie_config_rp: -ENOMEDIUM is no error; the log of an Orin with Jetson Linux 36.4.4 shows this
// for 141e0000.pcie, "Phy link never came up").
func TestDoctorNoFPGA(t *testing.T) {
	empty := map[string]string{"dev/tegra_p2p0": "-", "sys/class/tegra_p2p/tegra_p2p0/device": "-"}
	for name := range orin() {
		if strings.HasPrefix(name, slot) {
			empty[name] = "-"
		}
	}
	dark := map[string]string{
		"sys/bus/platform/drivers/tegra194-pcie/141e0000.pcie": "-> ../../devices/141e0000.pcie", "sys/bus/platform/devices/141e0000.pcie/uevent": "",
	}
	for name := range empty {
		dark[name] = "-"
	}
	const lines = "echo 141e0000.pcie > /sys/bus/platform/drivers/tegra194-pcie/unbind; echo 141e0000.pcie > /sys/bus/platform/drivers/tegra194-pcie/bind"
	p := ofPatient(changed(dark), usesNVP2P|protected)
	if got := p.absent(); got.Command != lines || !strings.Contains(got.Detail, "a rescan of the bus finds nothing") {
		t.Errorf("%+v", got)
	}
	(trial{"dark", dark, "FPGA", isMissing, "The controllers 141e0000.pcie had no link at boot"}).run(t, nil)
	(trial{"one alarm is enough", dark, "device", isNote, "not checked: no function is bound"}).run(t, nil)
	(trial{"lit", empty, "FPGA", isMissing, "No controller was switched off"}).run(t, nil)
	if got := ofPatient(fstest.MapFS{}, 0).absent(); got.Command != "echo 1 > /sys/bus/pci/rescan" {
		t.Errorf("no Jetson: %+v", got)
	}
}

// FuzzDoctorFiles checks that no content of the files causes a panic.
func FuzzDoctorFiles(f *testing.F) {
	f.Add([]byte(space(0x48, 1, 32, 2, 1)), "RxErr 1\nTOTAL 1", noRoom, "0x1 0x2 0x200\n")
	f.Add([]byte(space(0x50, 4, 0, 2, 1)), "Bad TLP x\n\n", "pci 0005:01:00.0: BAR 2: no space for [mem size 0x1]", strings.Repeat(noBAR, 7))
	last := make([]byte, 256) // a capability that extends beyond the end
	last[0x34], last[0xf0] = 0xf0, capExpress
	f.Add(last, "", "", "")
	f.Fuzz(func(t *testing.T, config []byte, aer, log, resource string) {
		c := pciConfig(config)
		c.vectors()
		c.powerSaving()
		if s := c.sizes(); s.payload > 128<<7 || s.payloadMax > 128<<7 {
			t.Errorf("%+v", s)
		}
		for _, x := range parseAER(aer) {
			if x.n == 0 {
				t.Error(x)
			}
		}
		for _, b := range withoutRoom(log, "0005:01:00.0") {
			if b.size == 0 || b.room {
				t.Error(b)
			}
		}
		for _, b := range parseBARs(resource) {
			if b.size == 0 || b.index > 5 || b.String() == "" {
				t.Error(b)
			}
		}
	})
}
