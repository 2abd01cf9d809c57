// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// pciConfig is a function's configuration space as in /sys/bus/pci/devices/*/config: 256 or 4096 bytes for root, the
// first 64 for others.
type pciConfig []byte

// Capability ids (PCI Express Base Specification 6.0 §7.5 and §7.7).
const (
	capMSI     = 0x05
	capExpress = 0x10
	capMSIX    = 0x11
)

// longest is the maximum number of bytes that are read of a capability.
const longest = 0x12

// capability returns the offset of a complete capability, or 0. It follows at most 48 entries, which is the maximum, so
// that a cyclic list ends.
func (c pciConfig) capability(id byte) int {
	if len(c) < 256 {
		return 0
	}
	for at, seen := int(c[0x34])&^3, 0; at >= 0x40 && at <= 0xf0 && seen < 48; at, seen = int(c[at+1])&^3, seen+1 {
		if c[at] == id && at+longest <= len(c) {
			return at
		}
	}
	return 0
}

func (c pciConfig) word(at int) int { return int(binary.LittleEndian.Uint16(c[at:])) }

// expressSizes holds limits of a function's packets in bytes: payload and read are the current limits of the payload
// and of a read request, payloadMax is the payload that the function supports. All are 0 if they are unknown.
type expressSizes struct{ payload, payloadMax, read int }

// sizes returns the limits in Device Capabilities and Device Control (§7.5.3.3, §7.5.3.4).
func (c pciConfig) sizes() expressSizes {
	at := c.capability(capExpress)
	if at == 0 {
		return expressSizes{}
	}
	capabilities, control := c.word(at+4), c.word(at+8)
	return expressSizes{payload: 128 << (control >> 5 & 7), payloadMax: 128 << (capabilities & 7), read: 128 << (control >> 12 & 7)}
}

// powerSaving returns the ASPM states enabled in Link Control (§7.5.3.7). known is false if c does not contain that
// register.
func (c pciConfig) powerSaving() (on []string, known bool) {
	at := c.capability(capExpress)
	if at == 0 {
		return nil, false
	}
	control := c.word(at + 0x10)
	for bit, name := range map[int]string{1: "L0s", 2: "L1"} {
		if control&bit != 0 {
			on = append(on, name)
		}
	}
	return on, true
}

// vectors describes the interrupts that the function offers, or returns "" if they are unknown.
func (c pciConfig) vectors() string {
	if len(c) < 256 {
		return ""
	}
	var offers []string
	if at := c.capability(capMSIX); at > 0 {
		offers = append(offers, fmt.Sprintf("MSI-X %d", c.word(at+2)&0x7ff+1))
	}
	if at := c.capability(capMSI); at > 0 {
		offers = append(offers, fmt.Sprintf("MSI %d", 1<<(c.word(at+2)>>1&7)))
	}
	if c[0x3d] != 0 {
		offers = append(offers, "a legacy line")
	}
	if offers == nil {
		return "none"
	}
	return strings.Join(offers, ", ")
}

// A pciFunction is a function on the PCI bus, identified by its folder /sys/bus/pci/devices/DDDD:BB:DD.F.
type pciFunction struct {
	p       patient
	dir     string
	address string
	config  pciConfig
	port    *pciFunction // the other end of its link; nil: none, or the function itself is a port
}

func (p patient) function(dir string) pciFunction {
	config, _ := fs.ReadFile(p.root, dir+"/config") // only root can read all of it
	return pciFunction{p: p, dir: dir, address: path.Base(dir), config: config}
}

func (f pciFunction) text(name string) string { return f.p.text(f.dir + "/" + name) }

// findPort returns the port above a function: the bridge of its domain whose secondary bus is the function's. It
// returns nil if there is none.
func (f pciFunction) findPort() *pciFunction {
	domain, rest, _ := strings.Cut(f.address, ":")
	bus, err := strconv.ParseUint(strings.Split(rest, ":")[0], 16, 8)
	if err != nil {
		return nil
	}
	bridges, _ := fs.Glob(f.p.root, "sys/bus/pci/devices/"+domain+":*/secondary_bus_number")
	for _, name := range bridges {
		if f.p.text(name) == strconv.FormatUint(bus, 10) {
			port := f.p.function(path.Dir(name))
			return &port
		}
	}
	return nil
}

// width returns the current and the maximum width of the link in lanes; 0: unknown.
func (f pciFunction) width() (now, most int) {
	now, _ = strconv.Atoi(f.text("current_link_width"))
	most, _ = strconv.Atoi(f.text("max_link_width"))
	return now, most
}

// speed returns the current and the maximum speed of the link in GT/s; 0: unknown ("Unknown").
func (f pciFunction) speed() (now, most float64) {
	value := func(name string) float64 {
		number, _, _ := strings.Cut(f.text(name), " ")
		v, _ := strconv.ParseFloat(number, 64)
		return v
	}
	return value("current_link_speed"), value("max_link_speed")
}

// aerCounter is the count of one kind of error of a function or a port.
type aerCounter struct {
	name string
	n    uint64
}

// parseAER parses a file of counters: lines of a name and a number, the last one the sum
// (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats). It omits zeros and the sum.
func parseAER(text string) (list []aerCounter) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || strings.HasPrefix(f[0], "TOTAL_") {
			continue
		}
		if n, err := strconv.ParseUint(f[len(f)-1], 10, 64); err == nil && n > 0 {
			list = append(list, aerCounter{strings.Join(f[:len(f)-1], " "), n})
		}
	}
	return list
}
