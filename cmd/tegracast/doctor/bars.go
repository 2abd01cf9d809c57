// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Flags of a resource (include/linux/ioport.h).
const (
	resourceIO       = 0x100
	resourceMemory   = 0x200
	resourcePrefetch = 0x2000
	resource64       = 0x100000
	resourceUnset    = 0x20000000
)

// A bar is a base address register that is implemented.
type bar struct {
	index int
	size  uint64
	flags uint64
	room  bool // it has an address
}

func (b bar) String() string {
	text := fmt.Sprintf("BAR %d %s", b.index, bytesText(b.size))
	if b.flags&resource64 != 0 {
		text += " 64-bit"
	}
	if b.flags&resourcePrefetch != 0 {
		text += " prefetchable"
	}
	return text
}

// bytesText formats a number of bytes in the largest unit of which it is a multiple.
func bytesText(n uint64) string {
	for _, u := range []struct {
		unit  uint64
		names string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.unit && n%u.unit == 0 {
			return fmt.Sprintf("%d %s", n/u.unit, u.names)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// parseBARs parses the resource file of a PCI function in sysfs: one line with start, end and flags for each BAR,
// followed by lines for the ROM and a bridge's windows, which it ignores.
func parseBARs(text string) (list []bar) {
	for i, line := range strings.Split(text, "\n") {
		var start, end, flags uint64
		if i > 5 {
			break
		}
		if n, _ := fmt.Sscanf(line, "0x%x 0x%x 0x%x", &start, &end, &flags); n != 3 || flags&(resourceMemory|resourceIO) == 0 || end < start || end-start == math.MaxUint64 {
			continue
		}
		list = append(list, bar{i, end - start + 1, flags, flags&resourceUnset == 0 && start != 0})
	}
	return list
}

// assignment matches a line of the kernel's log about a memory BAR: "BAR 2: no space for [mem size 0x10000000]" and "BAR
// 2: assigned [mem 0x…]" up to Linux 6.9, and since then "BAR 2 [mem size 0x10000000]: can't assign; no space" and "BAR 2
// [mem 0x…]: assigned".
var assignment = regexp.MustCompile(` ([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): BAR ([0-5])(?:` +
	`: (assigned|no space for|failed to assign) \[mem (?:size 0x([0-9a-f]+))?|` +
	` \[mem (?:size 0x([0-9a-f]+))?[^\]]*\]: (assigned|can't assign; no space|failed to assign))`)

// withoutRoom returns those BARs of a function to which the kernel, according to its log, could not give an address. The
// kernel may have tried again, so its last line about each BAR counts.
func withoutRoom(log, address string) (list []bar) {
	last := map[int]bar{}
	for _, m := range assignment.FindAllStringSubmatch(log, -1) {
		if m[1] != address {
			continue
		}
		index, _ := strconv.Atoi(m[2])
		size, _ := strconv.ParseUint(m[4]+m[5], 16, 64)
		last[index] = bar{index: index, size: size, room: m[3]+m[6] == "assigned"}
	}
	for i := range 6 {
		if b, told := last[i]; told && !b.room && b.size > 0 {
			list = append(list, b)
		}
	}
	return list
}

// bars reports which BARs the function has, and whether they have addresses.
func (f pciFunction) bars() finding {
	const what = "BARs"
	text := f.text("resource")
	if text == "" {
		return finding{what, isNote, f.address + ": not checked: /" + f.dir + "/resource cannot be read", ""}
	}
	var there, homeless []string
	for _, b := range parseBARs(text) {
		switch {
		case b.flags&resourceIO != 0: // XDMA has none
		case b.room:
			there = append(there, b.String())
		default:
			homeless = append(homeless, b.String())
		}
	}
	if homeless == nil { // the kernel drops a BAR that it could not place
		for _, b := range withoutRoom(f.p.kernelLog(), f.address) {
			homeless = append(homeless, b.String())
		}
	}
	switch {
	case homeless != nil:
		return finding{what, isMissing, fmt.Sprintf("%s: there are no addresses for %s: make it smaller, or 64-bit and prefetchable, in the FPGA's design "+
			"(a controller of an Orin has 128 MiB for BARs that are not prefetchable)", f.address, strings.Join(homeless, ", ")), ""}
	case there == nil:
		return finding{what, isMissing, f.address + " has no memory BAR: use a design with one, XDMA's registers are there", ""}
	}
	return finding{what, isGood, f.address + ": " + strings.Join(there, ", "), ""}
}

// interrupts reports how many interrupt vectors the function offers, and how many are in use according to the module or
// else to sysfs.
func (f pciFunction) interrupts() finding {
	const what = "interrupts"
	offers := f.config.vectors()
	if offers != "" {
		offers = ": the function offers " + offers
	}
	used := -1
	if info, _, err := f.module(); err == nil {
		used = int(info.NIRQs)
	} else if used = len(glob(f.p.root, f.dir+"/msi_irqs/*")); used == 0 && f.p.driver(f.dir) == "" {
		return finding{what, isNote, f.address + ": not checked: a driver sets them up" + offers, ""}
	}
	if used == 0 {
		return finding{what, isWarning, f.address + ": none in use" + offers + ". The channels are polled, which costs a CPU: see MSI or MSI-X in the FPGA's design", ""}
	}
	return finding{what, isGood, fmt.Sprintf("%s: %d in use%s", f.address, used, offers), ""}
}

func glob(root fs.FS, pattern string) []string {
	list, _ := fs.Glob(root, pattern) // cannot fail: the pattern is a constant with a PCI address
	return list
}
