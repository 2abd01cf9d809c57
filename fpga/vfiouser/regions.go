// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"golang.org/x/sys/unix"
)

// Numbers of a PCI device's regions, and flags of a region (linux/vfio.h). Regions 0 to 5 are the BARs, 6 is the ROM, 8
// is VGA; regions is the number of regions.
const (
	regionConfig = 7
	regions      = 9

	regionReadable  = 1
	regionWriteable = 2
)

const ones = 0xff

// regionSize returns the size of a region, or 0 if it does not exist.
func (s *Server) regionSize(index uint32) uint64 {
	if index == regionConfig {
		return configSize
	}
	if index < bars {
		if b := s.f.bar(int(index)); b != nil {
			return b.Size
		}
	}
	return 0
}

func (s *Server) regionInfo(m *message, out []byte) ([]byte, unix.Errno) {
	const size = 32
	index, errno := m.infoRequest(size)
	if errno != 0 || index >= regions {
		return nil, unix.EINVAL
	}
	bytes, flags := s.regionSize(index), uint32(0)
	if bytes > 0 {
		flags = regionReadable | regionWriteable
	}
	out = words(out, size, flags, index, 0)
	return le.AppendUint64(le.AppendUint64(out, bytes), 0), 0
}

// access decodes an access and checks that it lies within its region.
func (s *Server) access(m *message, write bool) (r accessRequest, errno unix.Errno) {
	if r, errno = m.accessRequest(write); errno != 0 {
		return r, errno
	}
	if size := s.regionSize(r.region); r.offset > size || uint64(r.count) > size-r.offset {
		return r, unix.EINVAL
	}
	return r, 0
}

func (s *Server) readRegion(m *message, out []byte) ([]byte, unix.Errno) {
	r, errno := s.access(m, false)
	if errno != 0 {
		return nil, errno
	}
	out = append(out, m.body...)
	at := len(out)
	switch {
	case !s.present():
		for range r.count {
			out = append(out, ones)
		}
	case r.region == regionConfig:
		s.lookForAborts()
		out = append(out, s.config.read(int(r.offset), r.count, s.irqs.asserted())...)
	default:
		out = s.readBAR(s.f.bar(int(r.region)), out, r.offset, r.count)
	}
	return out[:at+r.count], 0
}

// readBAR appends to out the n bytes that begin at offset off of the BAR, and the rest of the 32-bit register that
// contains the last of them.
func (s *Server) readBAR(b *BAR, out []byte, off uint64, n int) []byte {
	first := int(off % 4)
	at := len(out)
	for word := off - uint64(first); word < off+uint64(n); word += 4 {
		out = le.AppendUint32(out, s.readWord(b, word))
	}
	if first > 0 {
		out = append(out[:at], out[at+first:]...)
	}
	return out
}

func (s *Server) readWord(b *BAR, off uint64) uint32 {
	switch x := &s.f.MSIX; {
	case !s.config.awake():
		return ^uint32(0)
	case x.Vectors > 0 && x.BAR == b.Index && off >= uint64(x.PBA) && off < uint64(x.PBA)+uint64(len(s.irqs.pending))*8:
		return le.Uint32(s.irqs.pendingBytes(int(off-uint64(x.PBA)), 4))
	case off >= b.Backed:
		return 0
	}
	return b.Registers.Read32(uint32(off))
}

func (s *Server) writeRegion(m *message, out []byte) ([]byte, unix.Errno) {
	r, errno := s.access(m, true)
	if errno != 0 {
		return nil, errno
	}
	out = append(out, m.body[:16]...)
	if !s.present() {
		return out, 0
	}
	if r.region == regionConfig {
		s.writeConfig(int(r.offset), r.data)
		return out, 0
	}
	if r.offset%4 != 0 || r.count%4 != 0 {
		return nil, unix.EINVAL // registers are 32 bits wide
	}
	b := s.f.bar(int(r.region))
	for i := 0; i < r.count && s.config.awake(); i += 4 {
		if off := r.offset + uint64(i); off < b.Backed {
			b.Registers.Write32(uint32(off), le.Uint32(r.data[i:]))
		}
	}
	return out, 0
}

// writeConfig writes to configuration space and applies the effects, such as a Function Level Reset.
func (s *Server) writeConfig(off int, p []byte) {
	s.lookForAborts()
	if s.config.write(off, p)&devControlFLR != 0 {
		s.reset()
		return
	}
	s.configured()
}

// lookForAborts sets Received Master Abort if a DMA read was refused since the previous call.
func (s *Server) lookForAborts() {
	if s.aborted.Swap(false) {
		s.config.abort()
	}
}
