// SPDX-License-Identifier: Apache-2.0

package model

// Targets of the DMA BAR: address = target << 12 | channel << 8 | offset.
const (
	targetH2C = iota
	targetC2H
	targetIRQ
	targetConfig
	targetH2CSGDMA
	targetC2HSGDMA
	targetCommon
)

const (
	msixTable = 0x8000
	msixPBA   = 0x8fe0
)

// identifier returns a block's first register: 0x1fc, target, stream, channel, version of the IP.
func identifier(target uint32, stream bool, channel int) uint32 {
	const version = 6
	id := 0x1fc<<20 | target<<16 | uint32(channel)<<8 | version
	if stream {
		id |= 1 << 15
	}
	return id
}

func (d *Device) readDMA(addr uint32) uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case addr >= msixTable && addr < msixTable+4*uint32(len(d.msix.table)):
		return d.msix.table[(addr-msixTable)/4]
	case addr == msixPBA:
		return d.msix.pending
	}
	off := addr & 0xff
	switch target := addr >> 12; target {
	case targetH2C, targetC2H:
		if e := d.engineAt(target == targetC2H, addr); e != nil {
			return e.readChannel(off)
		}
	case targetH2CSGDMA, targetC2HSGDMA:
		if e := d.engineAt(target == targetC2HSGDMA, addr); e != nil {
			return e.readSGDMA(off)
		}
	case targetIRQ:
		return d.readIRQ(addr & 0xfff)
	case targetConfig:
		return d.readConfig(addr & 0xfff)
	case targetCommon:
		return d.readCommon(addr & 0xfff)
	}
	return 0
}

func (d *Device) writeDMA(addr, v uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if addr >= msixTable && addr < msixTable+4*uint32(len(d.msix.table)) {
		d.msix.writeTable(addr-msixTable, v)
		return
	}
	off := addr & 0xff
	switch target := addr >> 12; target {
	case targetH2C, targetC2H:
		if e := d.engineAt(target == targetC2H, addr); e != nil {
			e.writeChannel(off, v)
		}
	case targetH2CSGDMA, targetC2HSGDMA:
		if e := d.engineAt(target == targetC2HSGDMA, addr); e != nil {
			e.writeSGDMA(off, v)
		}
	case targetIRQ:
		d.writeIRQ(addr&0xfff, v)
	case targetCommon:
		d.writeCommon(addr&0xfff, v)
	}
}

// engineAt returns the channel for an address, or nil if the device has no such channel.
func (d *Device) engineAt(c2h bool, addr uint32) *engine {
	list := d.h2c
	if c2h {
		list = d.c2h
	}
	if channel := int(addr >> 8 & 0xf); channel < len(list) {
		return list[channel]
	}
	return nil
}

// readConfig reads the configuration block (0x3000), which is read-only.
func (d *Device) readConfig(off uint32) uint32 {
	switch off {
	case 0x00:
		return identifier(targetConfig, false, 0)
	case 0x04:
		return 1 << 8 // bus 1, device 0, function 0
	case 0x08:
		return 1 // max payload 256 bytes
	case 0x0c:
		return 2 // max read request 512 bytes
	case 0x14:
		switch {
		case d.cfg.MSI == 0:
			return 1 << 1 // MSI-X enabled
		case d.cfg.MSI > 0:
			return 1 << 0 // MSI enabled
		}
	case 0x18:
		return 1 // data path of 128 bits
	}
	return 0
}

func (d *Device) readCommon(off uint32) uint32 {
	switch off {
	case 0x00:
		return identifier(targetCommon, false, 0)
	case 0x10:
		return d.common.halt
	case 0x20:
		return d.common.creditMode
	}
	return 0
}

func (d *Device) writeCommon(off, v uint32) {
	const channels = 0xf<<16 | 0xf
	switch off {
	case 0x10, 0x14, 0x18:
		d.common.halt = setClear(d.common.halt, off-0x10, v) & channels
	case 0x20, 0x24, 0x28:
		d.common.creditMode = setClear(d.common.creditMode, off-0x20, v) & channels
	default:
		return
	}
	for _, e := range d.engines() {
		if d.common.creditMode&e.commonBit() == 0 {
			e.credits = 0
		}
		e.kick()
	}
}
