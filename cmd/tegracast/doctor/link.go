// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// link compares a function's link with the capabilities of both ends.
func (f pciFunction) link() finding {
	width, widest := f.width()
	speed, fastest := f.speed()
	if width == 0 {
		return finding{"FPGA", isNote, f.address + " has no PCI Express link of its own", ""}
	}
	detail := fmt.Sprintf("%s: x%d of x%d lanes, %.4g of %.4g GT/s", f.address, width, widest, speed, fastest)
	grade, because, bestWidth, bestSpeed := isGood, "", widest, fastest
	if f.port != nil {
		_, portWidth := f.port.width()
		_, portSpeed := f.port.speed()
		detail += fmt.Sprintf("; its port %s: x%d, %.4g GT/s", f.port.address, portWidth, portSpeed)
		if portWidth > 0 && portSpeed > 0 && (portWidth < bestWidth || portSpeed < bestSpeed) {
			grade, because = isNote, ": the port is the limit"
			bestWidth, bestSpeed = min(bestWidth, portWidth), min(bestSpeed, portSpeed)
		}
	}
	if width < bestWidth || speed < bestSpeed {
		grade, because = isWarning, ": less than both ends can do. Check seating, cable, lane order and reference clock; see lspci -vv -s "+f.address
	}
	return finding{"FPGA", grade, detail + because + f.packets(), ""}
}

// packets describes the packet sizes, or returns "" if they are unknown.
func (f pciFunction) packets() string {
	own := f.config.sizes()
	if own.payloadMax == 0 {
		return ""
	}
	text := fmt.Sprintf("; payload %d of %d bytes, reads of %d", own.payload, own.payloadMax, own.read)
	if f.port == nil {
		return text
	}
	if port := f.port.config.sizes(); own.payload < min(own.payloadMax, port.payloadMax) {
		text += fmt.Sprintf(" (the port can do %d: pci=pcie_bus_perf in the kernel's command line)", port.payloadMax)
	}
	return text
}

// powerSaving checks that ASPM is off: leaving L1 takes microseconds, in which frames wait in the FPGA.
func (f pciFunction) powerSaving() finding {
	const what = "ASPM"
	files, _ := fs.Glob(f.p.root, f.dir+"/link/*")
	var on, off []string
	for _, name := range files {
		if f.p.text(name) == "1" {
			on = append(on, path.Base(name))
			off = append(off, "echo 0 > /"+name)
		}
	}
	if files != nil && on != nil {
		return finding{what, isWarning, fmt.Sprintf("%s: the link saves power (%s): latency varies", f.address, strings.Join(on, ", ")), strings.Join(off, "; ")}
	}
	states, known := f.config.powerSaving()
	switch {
	case len(states) > 0:
		slices.Sort(states)
		return finding{
			what, isWarning, fmt.Sprintf("%s: the link saves power (%s): latency varies", f.address, strings.Join(states, ", ")),
			"echo performance > /sys/module/pcie_aspm/parameters/policy",
		}
	case files == nil && !known:
		return finding{what, isNote, f.address + ": not checked: neither the kernel nor the configuration space shows it to this user", ""}
	}
	return finding{what, isGood, f.address + ": the link does not save power", ""}
}

// linkErrors reports the errors that the function and its port have counted (AER).
func (f pciFunction) linkErrors() finding {
	const what = "link errors"
	ends := []pciFunction{f}
	if f.port != nil {
		ends = append(ends, *f.port)
	}
	var found []string
	counted := 0
	for _, end := range ends {
		for _, kind := range []string{"correctable", "nonfatal", "fatal"} {
			text := end.text("aer_dev_" + kind)
			if text != "" {
				counted++
			}
			for _, c := range parseAER(text) {
				found = append(found, fmt.Sprintf("%s %s %s %d", end.address, kind, c.name, c.n))
			}
		}
	}
	switch {
	case found != nil:
		return finding{what, isWarning, strings.Join(found, ", ") + ". Check seating, cable and reference clock; see journalctl -k -g AER", ""}
	case counted == 0:
		return finding{what, isNote, f.address + ": not checked: neither it nor its port counts errors (AER)", ""}
	}
	return finding{what, isGood, f.address + ": none counted", ""}
}
