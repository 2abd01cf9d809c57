// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/board"
	"github.com/tegracast/tegracast/tegra"
)

// module checks whether the module is loaded. symbols is the finding about the installed one.
func (p patient) module(symbols finding) finding {
	if p.exists("sys/module/tegra_p2p") {
		if p.text("sys/module/tegra_p2p/parameters/allow_unsafe") == "Y" {
			return finding{"module", isWarning, "tegra_p2p is loaded with allow_unsafe=1: an FPGA without an IOMMU reaches all memory", "rm -f /etc/modprobe.d/tegra_p2p-development.conf; modprobe -r tegra_p2p; modprobe tegra_p2p"}
		}
		return finding{"module", isGood, "tegra_p2p is loaded", ""}
	}
	switch file, others := p.moduleFor(p.release()); {
	case file != "" && symbols.Grade == isMissing:
		return finding{"module", isMissing, "tegra_p2p is installed and cannot be loaded: see symbols", ""}
	case file != "":
		return finding{"module", isMissing, "tegra_p2p is installed but not loaded", "modprobe tegra_p2p"}
	case others != nil:
		return finding{"module", isMissing, "tegra_p2p is installed for Linux " + strings.Join(others, ", ") + ", not for the running one", "dkms autoinstall; modprobe tegra_p2p"}
	}
	return finding{"module", isMissing, "the kernel module tegra_p2p is not installed: no repository has its package, it is beside tegracast_*.deb (make deb)", "apt-get install ./tegracast-dkms_*_all.deb"}
}

// idsOfFPGAs are the beginnings of PCI ids that hint at an FPGA: AMD's vendor id, and NVIDIA's demonstration designs. A
// design may have any other id.
var idsOfFPGAs = []string{"0x10ee ", "0x10de 0x0001"}

// fpgas returns the functions that may be an FPGA.
func (p patient) fpgas() (list []pciFunction) {
	dirs, _ := fs.Glob(p.root, "sys/bus/pci/devices/*")
	for _, dir := range dirs {
		id := p.text(dir+"/vendor") + " " + p.text(dir+"/device")
		if p.driver(dir) == "tegra_p2p" || slices.ContainsFunc(idsOfFPGAs, func(known string) bool { return strings.HasPrefix(id, known) }) {
			f := p.function(dir)
			f.port = f.findPort()
			list = append(list, f)
		}
	}
	return list
}

// functions checks the PCI Express functions that may be an FPGA.
func (p patient) functions() []finding {
	var list []finding
	for _, f := range p.fpgas() {
		list = append(list, f.link(), f.powerSaving(), f.linkErrors(), f.bars(), f.bound(), f.interrupts(), f.iommu(), f.group())
	}
	if list == nil {
		return []finding{p.absent()}
	}
	return list
}

// controllers returns the PCI Express controllers of a Jetson: lit are those with a bus, by name; dark are those that
// were shut down at boot because they had no link, as DRIVER/NAME (pcie-tegra194.c: probe succeeds, and the controller
// is switched off).
func (p patient) controllers() (lit, dark []string) {
	drivers, _ := fs.Glob(p.root, "sys/bus/platform/drivers/tegra*-pcie/*.pcie")
	for _, d := range drivers {
		name := path.Base(d)
		if roots, _ := fs.Glob(p.root, "sys/bus/platform/devices/"+name+"/pci[0-9a-f]*:*"); len(roots) > 0 {
			lit = append(lit, name)
		} else {
			dark = append(dark, path.Base(path.Dir(d))+"/"+name)
		}
	}
	return lit, dark
}

// absent reports that there is no FPGA, and what to do.
func (p patient) absent() finding {
	const none = "no function with the PCI id of an FPGA (vendor 10ee, or 10de:0001) is on the bus, and none is bound to tegra_p2p"
	lit, dark := p.controllers()
	switch {
	case dark != nil:
		var names, lines []string
		for _, d := range dark {
			driver, name := path.Split(d)
			names = append(names, name)
			folder := "/sys/bus/platform/drivers/" + driver
			lines = append(lines, fmt.Sprintf("echo %s > %sunbind; echo %s > %sbind", name, folder, name, folder))
		}
		return finding{"FPGA", isMissing, none + ". The controllers " + strings.Join(names, ", ") + " had no link at boot and were switched off: a rescan of the bus finds nothing " +
			"there. Configure the FPGA from flash, so that it is ready 100 ms after power; or configure it now and start the controllers again, or reboot", strings.Join(lines, "; ")}
	case lit != nil || board.Identify(p.root).Family != board.Other:
		return finding{"FPGA", isMissing, none + ". No controller was switched off for want of a link: see lspci for what is in the slot, whether the slot is enabled in the " +
			"device tree (status), and whether the FPGA has power", ""}
	}
	return finding{"FPGA", isMissing, none + ": is the FPGA powered, and configured before the bus was scanned?", "echo 1 > /sys/bus/pci/rescan"}
}

func (p patient) driver(dir string) string {
	target, err := fs.ReadLink(p.root, dir+"/driver")
	if err != nil {
		return ""
	}
	return path.Base(target)
}

func (f pciFunction) bound() finding {
	driver := f.p.driver(f.dir)
	switch {
	case driver == "tegra_p2p":
		return finding{"driver", isGood, f.address + " is driven by tegra_p2p", ""}
	case driver == "" && !f.p.exists("sys/module/tegra_p2p"):
		return finding{"driver", isNote, f.address + ": not checked: the module is not loaded", ""}
	case driver == "":
		return finding{"driver", isMissing, f.address + " has no driver", "tegracast bind " + f.address}
	case driver == "xdma":
		return finding{"driver", isMissing, f.address + " is driven by AMD's xdma, which was loaded by hand or from the initramfs, where a blacklist does not count: remove it there, too (update-initramfs -u)", "tegracast bind --yes " + f.address}
	}
	return finding{"driver", isMissing, f.address + " is driven by " + driver, "tegracast bind --yes " + f.address}
}

func (p patient) devices() finding {
	list, _ := fs.Glob(p.root, "dev/tegra_p2p*")
	if len(list) == 0 {
		bound := slices.ContainsFunc(p.fpgas(), func(f pciFunction) bool { return p.driver(f.dir) == "tegra_p2p" })
		switch {
		case !p.exists("sys/module/tegra_p2p"):
			return finding{"device", isNote, "not checked: the module is not loaded", ""}
		case !bound:
			return finding{"device", isNote, "not checked: no function is bound to tegra_p2p", ""}
		}
		return finding{"device", isMissing, "a function is bound to tegra_p2p, but there is no /dev/tegra_p2p0; see journalctl -k -g tegra_p2p", ""}
	}
	var wrong, right []string
	for _, name := range list {
		if owners, _ := tegra.Owners(p.root, name); len(owners) > 0 { // it is not opened while another process has it open
			right = append(right, "/"+name+" is in use by "+owners[0].String())
		} else if err := p.open("/" + name); errors.Is(err, fs.ErrPermission) && !strings.Contains(err.Error(), "IOMMU") {
			return p.shut("/" + name)
		} else if err != nil {
			wrong = append(wrong, err.Error())
		} else {
			right = append(right, "/"+name+" can be opened")
		}
	}
	if wrong != nil {
		return finding{"device", isMissing, strings.Join(wrong, "; ") + "; see journalctl -k -g tegra_p2p", ""}
	}
	return finding{"device", isGood, strings.Join(right, "; "), ""}
}

// shut reports a device file that this user may not open. The package's udev rule gives it to the group tegracast.
func (p patient) shut(device string) finding {
	if p.user == "tegracast" {
		return finding{"device", isMissing, device + " cannot be opened by the service's user: the package's udev rule has not given it to the group tegracast", "udevadm trigger --action=add " + device}
	}
	return finding{"device", isWarning, device + " cannot be opened by this user", "usermod -a -G tegracast \"$SUDO_USER\""}
}
