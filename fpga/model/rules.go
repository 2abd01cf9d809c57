// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"

	"github.com/tegracast/tegracast/fpga"
)

// A Rule is something that PG195 requires of a host, preceded by the title of the section that requires it.
// docs/reference/pg195.md lists all rules, including those that only a design can break.
type Rule string

const (
	RuleMagic             = Rule("Descriptors: the magic is 0xad4b")
	RuleReserved          = Rule("Descriptors: reserved control bits are 0")
	RuleLength            = Rule("Descriptors: a length is 1 to 2^28-1 bytes")
	RuleDescriptorAddress = Rule("Descriptors: a descriptor is aligned to 32 bytes")
	RuleBlock             = Rule("Descriptors: a block of adjacent descriptors does not cross 4 KiB")
	RuleAdjacent          = Rule("Descriptors: the next field of each descriptor of a block but the last points at its neighbour")
	RuleC2HLength         = Rule("Length Granularity: a C2H stream descriptor is a multiple of 64 bytes")
	RuleStreamWidth       = Rule("H2C Channel Status: a stream descriptor that does not end a packet is a multiple of the data width")
	RuleFixedAddress      = Rule("Address Alignment, Length Granularity: with a fixed card address, addresses and length are multiples of the data width")
	RuleCredits           = Rule("SGDMA Descriptor Credits: the counter has 10 bits")
)

func (r Rule) Error() string { return "PG195, " + string(r) }

const (
	reservedBits   = 0xc000 | 0xff&^(descStop|descCompleted|descEOP)
	maxLength      = 1<<28 - 1
	c2hGranularity = 64
)

// broken reports to the device's owner that the host has broken a rule, or panics if Config.Broken is nil.
func (d *Device) broken(err error) {
	if d.cfg.Broken == nil {
		panic(err)
	}
	d.cfg.Broken(err)
}

// checkBlock looks for broken rules in the descriptors fetched from addr, sets breaks, and reports the rules. A wrong
// magic is not blamed on the host if faults are enabled, because the engine may have gone beyond its credits.
func (e *engine) checkBlock(block []descriptor, addr uint64) {
	for i := range block {
		c, at := &block[i], addr+uint64(i)*descriptorBytes
		switch {
		case c.breaks != "":
		case i+1 < len(block) && c.next != at+descriptorBytes:
			c.breaks = RuleAdjacent
		case e.stream && e.dir == fpga.C2H && c.length%c2hGranularity != 0:
			c.breaks = RuleC2HLength
		case e.stream && e.dir == fpga.H2C && c.length%BeatBytes != 0 && c.control&descEOP == 0:
			c.breaks = RuleStreamWidth
		}
		if c.breaks != "" && (c.breaks != RuleMagic || !e.d.faults.on.Load()) {
			e.d.broken(fmt.Errorf("%v channel %d, descriptor at %#x of %d bytes: %w", e.dir, e.channel, at, c.length, c.breaks))
		}
	}
}
