// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/board"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// errNoDevice means that the module has no device file for a function.
var errNoDevice = errors.New("no device file")

// module returns the kernel module's information about the function, and the path of the function's device file,
// through which it was read. If there is no such file, it returns errNoDevice.
func (f pciFunction) module() (info uapi.Info, device string, err error) {
	names, _ := fs.Glob(f.p.root, "dev/tegra_p2p*")
	for _, name := range names {
		target, err := fs.ReadLink(f.p.root, "sys/class/tegra_p2p/"+path.Base(name)+"/device")
		if err == nil && path.Base(target) == f.address || err != nil && len(names) == 1 && f.p.driver(f.dir) == "tegra_p2p" {
			info, err := f.p.info("/" + name)
			return info, "/" + name, err
		}
	}
	return uapi.Info{}, "", errNoDevice
}

// strict returns the advice to boot with a strict IOMMU, and on Jetson Linux, where the kernel's command line is in
// extlinux.conf, a command for that.
func (p patient) strict() (advice, command string) {
	const words = "iommu.passthrough=0 iommu.strict=1"
	const file = "/boot/extlinux/extlinux.conf"
	if !p.exists(file[1:]) {
		return "boot with " + words, ""
	}
	return "add " + words + " to the kernel's command line, and reboot", "grep -q iommu.strict=1 " + file + " || sed -i '/^ *APPEND /s/$/ " + words + "/' " + file
}

// iommu checks what keeps a function from accessing other memory. It asks the module, because before Linux 5.15 the type
// of a group is DMA for lazy domains, too (Documentation/ABI/testing/sysfs-kernel-iommu_groups).
func (f pciFunction) iommu() finding {
	const what = "IOMMU"
	if lacks := f.deviceTree(); lacks != "" {
		return f.exposed(finding{what, isMissing, lacks, ""})
	}
	info, device, err := f.module()
	refused := errors.Is(err, unix.EPERM) || err == nil && info.Flags&uapi.InfoUnsafe != 0
	advice, command := f.p.strict()
	kind := f.text("iommu_group/type")
	lack := func(detail string) finding {
		return f.exposed(finding{what, isMissing, f.address + detail + ": " + advice, command})
	}
	switch {
	case err == nil && !refused:
		return finding{what, isGood, f.address + " is behind a strict IOMMU: the module says so", ""}
	case refused && kind == "DMA" && f.neighbours() != nil:
		return finding{what, isNote, f.address + ": not checked: it shares its group, see there", ""}
	case err == nil && info.Flags&uapi.InfoStrict != 0, refused && kind == "DMA" && !f.p.olderThan(5, 15):
		return f.exposed(finding{what, isMissing, f.address + " is behind a strict IOMMU, and the module does not call it protected; see journalctl -k -g 'not protected'", ""})
	case refused && kind == "DMA":
		return lack(fmt.Sprintf(": its group has type DMA, and the module calls %s not protected: before Linux 5.15 lazy domains have that type, too", device))
	case kind == "DMA":
		return finding{what, isGood, f.address + " is behind a strict IOMMU, by the type of its group; the module was not asked", ""}
	case kind == "DMA-FQ":
		return lack(" is behind a lazy IOMMU: memory stays reachable after it was taken back")
	case kind == "identity":
		return lack(" is behind an IOMMU that translates nothing: it reaches all memory, and tegra_p2p refuses it")
	}
	return lack(" is behind no IOMMU: it reaches all memory, and tegra_p2p refuses it")
}

// exposed turns a lack that allow_unsafe permits into a warning.
func (f pciFunction) exposed(x finding) finding {
	if f.p.text("sys/module/tegra_p2p/parameters/allow_unsafe") == "Y" {
		x.Grade, x.Detail = isWarning, x.Detail+" (allow_unsafe=1 permits it)"
	}
	return x
}

// controller returns the folder of the platform device of a function's PCI Express controller, such as 141a0000.pcie,
// or "". It contains the folder of its root bus, pciDDDD:BB.
func (f pciFunction) controller() string {
	domain, _, _ := strings.Cut(f.address, ":")
	roots, _ := fs.Glob(f.p.root, "sys/bus/platform/devices/*/pci"+domain+":*")
	if len(roots) == 0 {
		return ""
	}
	return path.Dir(roots[0])
}

// deviceTree describes the properties that the device-tree node of a Jetson's controller lacks and that no kernel
// parameter can replace. It returns "" if there are none, or the machine is not a Jetson.
func (f pciFunction) deviceTree() string {
	controller := f.controller()
	if controller == "" || board.Identify(f.p.root).Family == board.Other || !f.p.exists(controller+"/of_node/compatible") {
		return ""
	}
	var lacks []string
	for _, property := range []string{"iommu-map", "dma-coherent"} {
		if !f.p.exists(controller + "/of_node/" + property) {
			lacks = append(lacks, property)
		}
	}
	if lacks == nil {
		return ""
	}
	return fmt.Sprintf("%s: the device tree's node of its controller %s lacks %s, and no parameter of the kernel makes up for that: use NVIDIA's "+
		"device tree, or add the property with an overlay", f.address, path.Base(controller), strings.Join(lacks, " and "))
}

// classes maps PCI classes of cards that may share an IOMMU group with an FPGA (the upper 16 bits of the file class) to
// names.
var classes = map[string]string{
	"0x0108": "an NVMe SSD", "0x0106": "a SATA controller", "0x0200": "a network card", "0x0280": "a wireless card", "0x0c03": "a USB controller",
	"0x0300": "a display", "0x0302": "a GPU",
}

// neighbours describes the other functions in the IOMMU group, without bridges and the controller, which do no DMA
// themselves.
func (f pciFunction) neighbours() (list []string) {
	members, _ := fs.ReadDir(f.p.root, f.dir+"/iommu_group/devices")
	for _, m := range members {
		class := f.p.text("sys/bus/pci/devices/" + m.Name() + "/class")
		slot, _, _ := strings.Cut(m.Name(), ".")
		switch {
		case m.Name() == f.address || strings.HasPrefix(class, "0x0604") || m.Name() == path.Base(f.controller()):
			continue
		case strings.HasPrefix(f.address, slot+"."):
			list = append(list, m.Name()+", another function of the card")
		default:
			list = append(list, strings.TrimSuffix(m.Name()+", "+classes[class[:min(6, len(class))]], ", "))
		}
	}
	return list
}

// group reports which other functions share the function's IOMMU group, and with it the mappings.
func (f pciFunction) group() finding {
	const what = "IOMMU group"
	target, err := fs.ReadLink(f.p.root, f.dir+"/iommu_group")
	members, _ := fs.ReadDir(f.p.root, f.dir+"/iommu_group/devices")
	if members == nil {
		return finding{what, isNote, f.address + ": not checked: it has no group whose members can be read", ""}
	}
	number := ""
	if err == nil {
		number = " " + path.Base(target)
	}
	list := f.neighbours()
	if list == nil {
		return finding{what, isGood, fmt.Sprintf("%s is the only function in group%s", f.address, number), ""}
	}
	detail := fmt.Sprintf("%s shares group%s with %s: tegra_p2p does not call it protected. ", f.address, number, strings.Join(list, "; "))
	if !slices.ContainsFunc(list, func(m string) bool { return !strings.HasSuffix(m, "of the card") }) {
		return f.exposed(finding{what, isMissing, detail + "Make the FPGA's design with one function", ""})
	}
	return f.exposed(finding{what, isMissing, detail + "Use a slot of a controller of its own: not behind a switch that others are behind, too; see lspci -tv", ""})
}
