package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

func (p patient) module() finding {
	if p.exists("sys/module/tegra_p2p") {
		if p.text("sys/module/tegra_p2p/parameters/allow_unsafe") == "Y" {
			return finding{"module", isWarning, "tegra_p2p is loaded with allow_unsafe=1: an FPGA without an IOMMU reaches all memory", "rm -f /etc/modprobe.d/tegra_p2p-development.conf; modprobe -r tegra_p2p; modprobe tegra_p2p"}
		}
		return finding{"module", isGood, "tegra_p2p is loaded", ""}
	}
	for _, where := range []string{"lib/modules/*/updates/tegra_p2p.ko*", "lib/modules/*/updates/dkms/tegra_p2p.ko*"} {
		if found, _ := fs.Glob(p.root, where); len(found) > 0 {
			return finding{"module", isMissing, "tegra_p2p is installed and not loaded", "modprobe tegra_p2p"}
		}
	}
	return finding{"module", isMissing, "the kernel module tegra_p2p is not installed", "apt-get install tegracast-dkms"}
}

// idsOfFPGAs are a hint: AMD's vendor id, and NVIDIA's demonstration designs. A design may have any other.
var idsOfFPGAs = []string{"0x10ee ", "0x10de 0x0001"}

// functions are what an FPGA may be on PCI Express.
func (p patient) functions() []finding {
	var list []finding
	dirs, _ := fs.Glob(p.root, "sys/bus/pci/devices/*")
	for _, dir := range dirs {
		id := p.text(dir+"/vendor") + " " + p.text(dir+"/device")
		if p.driver(dir) == "tegra_p2p" || slices.ContainsFunc(idsOfFPGAs, func(known string) bool { return strings.HasPrefix(id, known) }) {
			list = append(list, p.link(dir), p.bound(dir), p.iommu(dir))
		}
	}
	if list == nil {
		return []finding{{"FPGA", isMissing, "no function with the PCI id of an FPGA (vendor 10ee, or 10de:0001) is on the bus, and none is bound to tegra_p2p: is the FPGA powered, and configured before the bus was scanned?", "echo 1 > /sys/bus/pci/rescan"}}
	}
	return list
}

func (p patient) driver(dir string) string {
	target, err := fs.ReadLink(p.root, dir+"/driver")
	if err != nil {
		return ""
	}
	return path.Base(target)
}

// link compares a function's link with what it can do.
func (p patient) link(dir string) finding {
	address := path.Base(dir)
	width, most := p.text(dir+"/current_link_width"), p.text(dir+"/max_link_width")
	speed, fastest := p.text(dir+"/current_link_speed"), p.text(dir+"/max_link_speed")
	if width == "" || width == "0" {
		return finding{"FPGA", isNote, address + " has no PCI Express link of its own", ""}
	}
	detail := fmt.Sprintf("%s: x%s of x%s lanes, %s of %s", address, width, most, speed, fastest)
	if now, can := p.payload(dir); can > 0 {
		detail += fmt.Sprintf(", payload %d of %d bytes", now, can)
	}
	if width != most || speed != fastest {
		return finding{"FPGA", isWarning, detail + ": less than it can do", "lspci -vv -s " + address}
	}
	return finding{"FPGA", isGood, detail, ""}
}

// payload is the largest payload of a packet in bytes as it is set and as it could be (PCI Express Base Specification, Device
// Capabilities and Device Control); 0 when only root may know.
func (p patient) payload(dir string) (now, can int) {
	config, err := fs.ReadFile(p.root, dir+"/config")
	if err != nil || len(config) < 256 {
		return 0, 0
	}
	const express = 0x10 // capability id
	for at, seen := int(config[0x34]), 0; at >= 0x40 && at <= 0xf0 && seen < 48; at, seen = int(config[at+1]), seen+1 {
		if config[at] == express {
			return 128 << (config[at+8] >> 5 & 7), 128 << (config[at+4] & 7)
		}
	}
	return 0, 0
}

func (p patient) bound(dir string) finding {
	address, driver := path.Base(dir), p.driver(dir)
	switch driver {
	case "tegra_p2p":
		return finding{"driver", isGood, address + " is driven by tegra_p2p", ""}
	case "":
		return finding{"driver", isMissing, address + " has no driver", "tegracast bind " + address}
	}
	return finding{"driver", isMissing, address + " is driven by " + driver, "tegracast bind --yes " + address}
}

// iommu says what keeps a function from other memory (Documentation/ABI/testing/sysfs-kernel-iommu_groups).
func (p patient) iommu(dir string) finding {
	const strict = "sed -i '/^ *APPEND /s/$/ iommu.passthrough=0 iommu.strict=1/' /boot/extlinux/extlinux.conf; reboot"
	address := path.Base(dir)
	kind := p.text(dir + "/iommu_group/type")
	switch {
	case kind == "DMA":
		return finding{"IOMMU", isGood, address + " is behind a strict IOMMU", ""}
	case p.text("sys/module/tegra_p2p/parameters/allow_unsafe") == "Y":
		return finding{"IOMMU", isWarning, address + " reaches all memory, which allow_unsafe=1 permits", strict}
	case kind == "DMA-FQ":
		return finding{"IOMMU", isMissing, address + " is behind a lazy IOMMU: memory stays reachable after it was taken back", strict}
	}
	return finding{"IOMMU", isMissing, address + " is behind no IOMMU of its own: it reaches all memory, and tegra_p2p refuses it", strict}
}

func (p patient) devices() finding {
	list, _ := fs.Glob(p.root, "dev/tegra_p2p*")
	if len(list) == 0 {
		return finding{"device", isMissing, "there is no /dev/tegra_p2p0: no function is bound to tegra_p2p", "journalctl -k -g tegra_p2p"}
	}
	var wrong []string
	for _, name := range list {
		if err := p.open("/" + name); errors.Is(err, fs.ErrPermission) && !strings.Contains(err.Error(), "IOMMU") {
			return finding{"device", isWarning, "/" + name + " cannot be opened by this user", "usermod -a -G tegracast \"$SUDO_USER\""}
		} else if err != nil && !strings.Contains(err.Error(), "another process") {
			wrong = append(wrong, err.Error())
		}
	}
	if wrong != nil {
		return finding{"device", isMissing, strings.Join(wrong, "; "), "journalctl -k -g tegra_p2p"}
	}
	return finding{"device", isGood, fmt.Sprintf("%d of tegra_p2p can be opened, or are in use", len(list)), ""}
}
