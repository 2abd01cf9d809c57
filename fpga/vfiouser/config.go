// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"math/bits"
	"slices"
)

// configSize is the size of PCI Express configuration space in bytes: 256 bytes and the extended capabilities.
const configSize = 4096

// Offsets in configuration space (PCI Express Base Specification, chapter 7).
const (
	cfgCommand = 0x04
	cfgStatus  = 0x06
	cfgBAR0    = 0x10
	capPM      = 0x40
	capMSI     = 0x48
	capMSIX    = 0x60
	capPCIe    = 0x70
	extAER     = 0x100
	extSerial  = 0x148

	cfgPMState    = capPM + 4
	cfgDevControl = capPCIe + 8
)

// Bits in configuration space.
const (
	commandMaster  = 1 << 2
	commandIntxOff = 1 << 10
	statusIntx     = 1 << 3
	statusCaps     = 1 << 4
	statusAbort    = 1 << 13 // Received Master Abort
	noSoftReset    = 1 << 3
	devControlFLR  = 1 << 15
)

// configSpace is the function's configuration space: its bytes, for each bit whether a write changes it or whether
// writing a one clears it, and the bytes after a reset.
type configSpace struct {
	bytes, writable, clears [configSize]byte
	reset                   [configSize]byte
}

func newConfigSpace(f *Function) *configSpace {
	c := &configSpace{}
	c.put16(0x00, f.Vendor, 0)
	c.put16(0x02, f.Device, 0)
	c.put16(cfgCommand, 0, 0x0546) // memory, bus master, parity, SERR, no INTx
	c.put16(cfgStatus, statusCaps, 0)
	le.PutUint16(c.clears[cfgStatus:], statusAbort)
	c.put32(0x08, f.Class<<8|uint32(f.Revision), 0)
	c.bytes[0x0c], c.writable[0x0c] = 0, 0xff // cache line size
	for _, b := range f.BARs {
		c.putBAR(b)
	}
	c.put16(0x2c, f.SubVendor, 0)
	c.put16(0x2e, f.SubDevice, 0)
	c.writable[0x3c] = 0xff // interrupt line
	if f.Line != nil {
		c.bytes[0x3d] = 1 // INTA#
	}
	c.putCapabilities(f)
	c.putExtended(f)
	c.reset = c.bytes
	return c
}

func (c *configSpace) put16(off int, v, writable uint16) {
	le.PutUint16(c.bytes[off:], v)
	le.PutUint16(c.writable[off:], writable)
}

func (c *configSpace) put32(off int, v, writable uint32) {
	le.PutUint32(c.bytes[off:], v)
	le.PutUint32(c.writable[off:], writable)
}

// putBAR makes the address bits above the size writable, so that the size can be read back after all ones were written.
func (c *configSpace) putBAR(b BAR) {
	at, kind := cfgBAR0+4*b.Index, uint32(0)
	if b.Prefetchable {
		kind |= 1 << 3
	}
	if b.Bits64 {
		kind |= 2 << 1
		c.put32(at+4, 0, uint32(^(b.Size-1)>>32))
	}
	c.put32(at, kind, uint32(^(b.Size-1))&^0xf)
}

// putCapabilities adds the function's capabilities and links them. Power management and PCI Express are always present.
func (c *configSpace) putCapabilities(f *Function) {
	chain := []int{capPM}
	c.put16(capPM+2, 3, 0)              // version 1.2: D0 and D3hot
	c.put16(cfgPMState, noSoftReset, 3) // the state is preserved in D3hot
	if f.MSI > 0 {
		chain = append(chain, capMSI)
		c.bytes[capMSI] = 0x05
		c.put16(capMSI+2, 1<<7|uint16(bits.Len(uint(f.MSI))-1)<<1, 0x71) // addresses of 64 bits
		c.put32(capMSI+4, 0, ^uint32(3))
		c.put32(capMSI+8, 0, ^uint32(0))
		c.put16(capMSI+12, 0, 0xffff)
	}
	if x := f.MSIX; x.Vectors > 0 {
		chain = append(chain, capMSIX)
		c.bytes[capMSIX] = 0x11
		c.put16(capMSIX+2, uint16(x.Vectors-1), 0xc000)
		c.put32(capMSIX+4, x.Table|uint32(x.BAR), 0)
		c.put32(capMSIX+8, x.PBA|uint32(x.BAR), 0)
	}
	chain = append(chain, capPCIe)
	c.bytes[capPM] = 0x01
	c.putExpress(f.Link)
	c.bytes[0x34] = capPM
	for i, at := range chain[:len(chain)-1] {
		c.bytes[at+1] = byte(chain[i+1])
	}
}

// putExpress adds the PCI Express capability of an endpoint, version 2.
func (c *configSpace) putExpress(l Link) {
	link := uint32(l.Width<<4 | l.Speed)
	c.bytes[capPCIe] = 0x10
	c.put16(capPCIe+2, 2, 0)
	c.put32(capPCIe+4, 1<<28|1<<15|1<<5|1, 0)  // FLR, role-based errors, extended tags, 256 bytes of payload
	c.put16(cfgDevControl, 0x2810, 0x7fff)     // reset value of PCI Express; FLR always reads as zero
	c.put32(capPCIe+12, link, 0)               // maximum speed and width
	c.put16(capPCIe+16, 0, 0x01fb)             // link control
	c.put16(capPCIe+18, uint16(link), 0)       // current speed and width
	c.put16(capPCIe+40, 0, 0x001f)             // device control 2: completion time-out
	c.put32(capPCIe+44, (1<<l.Speed-1)<<1, 0)  // speeds
	c.put16(capPCIe+48, uint16(l.Speed), 0x1f) // link control 2: target speed
}

// putExtended adds Advanced Error Reporting, in which no error is ever reported, and a serial number.
func (c *configSpace) putExtended(f *Function) {
	c.put32(extAER, extSerial<<20|2<<16|0x0001, 0)
	const uncorrectable, correctable = 0x07fff030, 0x0000f1c1
	c.put32(extAER+8, 0, uncorrectable)
	c.put32(extAER+12, 0x00462030, uncorrectable)
	c.put32(extAER+20, 0x0000e000, correctable)
	c.put32(extSerial, 1<<16|0x0003, 0)
	c.put32(extSerial+4, uint32(f.Device)<<16|uint32(f.Vendor), 0)
}

// write changes the writable bits, and clears the bits that are cleared by writing ones. It returns the bits of Device
// Control that were written as ones, because FLR cannot be read.
func (c *configSpace) write(off int, p []byte) (devControl uint16) {
	for i, v := range p {
		at := off + i
		w := c.writable[at]
		c.bytes[at] = c.bytes[at]&^w | v&w
		c.bytes[at] &^= v & c.clears[at]
		switch at {
		case cfgDevControl:
			devControl |= uint16(v)
		case cfgDevControl + 1:
			devControl |= uint16(v) << 8
		}
	}
	return devControl
}

// read returns n bytes. line is the level of the interrupt line.
func (c *configSpace) read(off, n int, line bool) []byte {
	b := slices.Clone(c.bytes[off : off+n])
	if at := cfgStatus - off; line && at >= 0 && at < n {
		b[at] |= statusIntx
	}
	return b
}

// abort sets Received Master Abort in the status register, because a DMA read by the function was refused.
func (c *configSpace) abort() { c.bytes[cfgStatus+1] |= statusAbort >> 8 }

func (c *configSpace) command() uint16 { return le.Uint16(c.bytes[cfgCommand:]) }

// granted returns the number of MSI vectors that the machine has enabled: Multiple Message Enable.
func (c *configSpace) granted() int { return 1 << (le.Uint16(c.bytes[capMSI+2:]) >> 4 & 7) }

// awake reports whether the function is in D0.
func (c *configSpace) awake() bool { return c.bytes[cfgPMState]&3 == 0 }
