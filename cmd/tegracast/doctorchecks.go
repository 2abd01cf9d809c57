package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"tegracast/board"
	"tegracast/fpga/mailbox"
)

// examine looks at everything, what others need first.
func (p patient) examine() []finding {
	list := []finding{p.board()}
	list = append(list, p.module())
	list = append(list, p.functions()...)
	list = append(list, p.devices())
	list = append(list, p.libraries()...)
	list = append(list, p.memlock(), p.buffers(), p.gpio(), p.clock())
	return append(list, p.power()...)
}

// text is a file's, without spaces around it; empty when it cannot be read.
func (p patient) text(name string) string {
	b, err := fs.ReadFile(p.root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (p patient) exists(name string) bool {
	_, err := fs.Stat(p.root, name)
	return err == nil
}

func (p patient) board() finding {
	id := board.Identify(p.root)
	switch {
	case id.Family == board.Other:
		return finding{"board", isNote, "no Jetson that is known here " + id.Model, ""}
	case id.L4T == "":
		return finding{"board", isWarning, fmt.Sprintf("%s (%s, module %s), without /etc/nv_tegra_release of Jetson Linux", id.Model, id.Family, id.Module), "apt-get install nvidia-l4t-core"}
	}
	return finding{"board", isGood, fmt.Sprintf("%s (%s, module %s), Jetson Linux %s", id.Model, id.Family, id.Module, id.L4T), ""}
}

func (p patient) module() finding {
	if p.exists("sys/module/tegra_p2p") {
		pins := "pins through pin_user_pages"
		if p.exists("sys/module/nvidia_p2p") || p.exists("sys/module/nvidia") {
			pins = "nv-p2p is there"
		}
		if p.text("sys/module/tegra_p2p/parameters/allow_unsafe") == "Y" {
			return finding{"module", isWarning, "tegra_p2p is loaded with allow_unsafe=1: an FPGA without an IOMMU reaches all memory; " + pins, "rm -f /etc/modprobe.d/tegra_p2p-development.conf; modprobe -r tegra_p2p; modprobe tegra_p2p"}
		}
		return finding{"module", isGood, "tegra_p2p is loaded; " + pins, ""}
	}
	for _, where := range []string{"lib/modules/*/updates/tegra_p2p.ko*", "lib/modules/*/updates/dkms/tegra_p2p.ko*"} {
		if found, _ := fs.Glob(p.root, where); len(found) > 0 {
			return finding{"module", isMissing, "tegra_p2p is installed and not loaded", "modprobe tegra_p2p"}
		}
	}
	return finding{"module", isMissing, "the kernel module tegra_p2p is not installed", "apt-get install tegracast-dkms"}
}

// functions are what an FPGA may be on PCI Express.
func (p patient) functions() []finding {
	var list []finding
	dirs, _ := fs.Glob(p.root, "sys/bus/pci/devices/*")
	for _, dir := range dirs {
		id := p.text(dir+"/vendor") + " " + p.text(dir+"/device")
		if strings.HasPrefix(id, fmt.Sprintf("%#04x ", vendorXilinx)) || id == fmt.Sprintf("%#04x %#04x", mailbox.Vendor, mailbox.Device) || p.driver(dir) == "tegra_p2p" {
			list = append(list, p.link(dir), p.bound(dir), p.iommu(dir))
		}
	}
	if list == nil {
		return []finding{{"FPGA", isMissing, "no function with an XDMA core (PCI vendor 10ee) is on the bus: is the FPGA powered, and configured before the bus was scanned?", "echo 1 > /sys/bus/pci/rescan"}}
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
	bind := fmt.Sprintf("echo tegra_p2p > /sys/bus/pci/devices/%s/driver_override; echo %s > /sys/bus/pci/drivers_probe", address, address)
	switch driver {
	case "tegra_p2p":
		return finding{"driver", isGood, address + " is driven by tegra_p2p", ""}
	case "":
		return finding{"driver", isMissing, address + " has no driver", bind}
	}
	return finding{"driver", isMissing, address + " is driven by " + driver, fmt.Sprintf("echo %s > /sys/bus/pci/drivers/%s/unbind; %s", address, driver, bind)}
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

// libraryFolders are where Jetson Linux, Debian and NVIDIA's installer put libraries.
var libraryFolders = []string{
	"usr/lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu/nvidia", "usr/lib/aarch64-linux-gnu/tegra", "usr/lib/x86_64-linux-gnu",
	"usr/local/cuda/lib64", "usr/local/cuda*/targets/*/lib",
}

func (p patient) libraries() []finding {
	var list []finding
	for _, l := range []struct{ name, file, pack string }{
		{"libcuda", "libcuda.so.1", "nvidia-l4t-cuda"}, {"libnvrtc", "libnvrtc.so.*", "nvidia-jetpack"}, {"nvjpeg", "libnvjpeg.so.1[0-9]*", "nvidia-jetpack"},
	} {
		found := ""
		for _, dir := range libraryFolders {
			if files, _ := fs.Glob(p.root, dir+"/"+l.file); len(files) > 0 {
				found = files[0]
				break
			}
		}
		absent := l.file + " is not there: frames are in host memory, and the CPU does the work"
		switch {
		case found != "":
			list = append(list, finding{l.name, isGood, "/" + found, ""})
		case board.Identify(p.root).Family == board.Other:
			list = append(list, finding{l.name, isNote, absent, ""})
		default:
			list = append(list, finding{l.name, isWarning, absent, "apt-get install " + l.pack})
		}
	}
	return list
}

var lockedMemory = regexp.MustCompile(`(?m)^Max locked memory +(\S+)`)

// memlock wants room for the frames of a camera: 8 slots of 4K.
func (p patient) memlock() finding {
	m := lockedMemory.FindStringSubmatch(p.text("proc/self/limits"))
	if m == nil || m[1] == "unlimited" {
		return finding{"memlock", isGood, "memory may be locked without limit", ""}
	}
	n, _ := strconv.Atoi(m[1])
	if n >= 256<<20 {
		return finding{"memlock", isGood, fmt.Sprintf("%d MiB may be locked", n>>20), ""}
	}
	return finding{"memlock", isWarning, fmt.Sprintf("this shell may lock %d KiB of memory only; the service has no limit", n>>10), "ulimit -l unlimited"}
}

// socketBuffer is what the largest train of packets of a frame and its successor fit in.
const socketBuffer = 4 << 20

func (p patient) buffers() finding {
	for _, name := range []string{"wmem_max", "rmem_max"} {
		if n, err := strconv.Atoi(p.text("proc/sys/net/core/" + name)); err == nil && n < socketBuffer {
			return finding{"sockets", isWarning, fmt.Sprintf("net.core.%s is %d bytes: bursts may not fit", name, n), fmt.Sprintf("sysctl -w net.core.wmem_max=%d net.core.rmem_max=%d", 2*socketBuffer, 2*socketBuffer)}
		}
	}
	return finding{"sockets", isGood, "socket buffers may be long enough", ""}
}

func (p patient) gpio() finding {
	chips, _ := fs.Glob(p.root, "dev/gpiochip*")
	if len(chips) == 0 {
		return finding{"GPIO", isNote, "there is no GPIO chip: no trigger and no status LED", ""}
	}
	return finding{"GPIO", isGood, fmt.Sprintf("%d chips", len(chips)), ""}
}

func (p patient) clock() finding {
	if p.synchronised() {
		return finding{"time", isGood, "the clock is synchronised", ""}
	}
	return finding{"time", isWarning, "the clock is not synchronised: times of frames mean nothing to other machines", "timedatectl set-ntp true"}
}

// power is about a Jetson's speed.
func (p patient) power() []finding {
	var list []finding
	if mode := board.PowerMode(p.root); strings.HasPrefix(mode, "MAXN") {
		list = append(list, finding{"power mode", isGood, mode, ""})
	} else if mode != "" {
		list = append(list, finding{"power mode", isWarning, mode + " is not the fastest one", "nvpmodel -p --verbose"})
	}
	if governor := p.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"); governor != "" && governor != "performance" {
		list = append(list, finding{"clocks", isWarning, "the CPU's clock follows the load (" + governor + "): latency varies", "jetson_clocks"})
	}
	for _, r := range board.Rails(p.root) {
		if r.Alarm {
			list = append(list, finding{"power", isWarning, fmt.Sprintf("rail %s is, or was, above its limit: %.2f A", r.Name, r.Amps), "tegrastats"})
		}
	}
	for _, t := range board.Throttles(p.root) {
		if t.State > 0 {
			list = append(list, finding{"throttling", isWarning, fmt.Sprintf("%s is at %d", t.Name, t.State), "tegrastats"})
		}
	}
	return list
}
