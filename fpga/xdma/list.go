// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/tegracast/tegracast/fpga"
)

// part describes one descriptor to be made: n bytes from src to dst.
type part struct {
	src, dst uint64
	n        int
	control  uint32
}

// pieces splits segments that are too long for one descriptor, and omits empty ones.
func pieces(segments []fpga.Segment) (list []fpga.Segment) {
	const most = maxDescriptor &^ (descriptorPage - 1)
	for _, s := range segments {
		for s.Len > most {
			list = append(list, fpga.Segment{Addr: s.Addr, Len: most})
			s.Addr, s.Len = s.Addr+most, s.Len-most
		}
		if s.Len > 0 {
			list = append(list, s)
		}
	}
	return list
}

// chain is a run of descriptors in coherent memory, in the order in which the engine fetches them.
type chain struct {
	bytes []byte // descriptorSize for each
	addr  uint64 // bus address of the first
	n     int
}

// writeChain writes the descriptors of parts at addr. The next field of each points to its neighbour, and its Nxt_adj
// says how many more follow that neighbour within the same 4 KiB, so that the engine may fetch any prefix of a block.
// The next field of the last one is 0.
func writeChain(mem []byte, addr uint64, parts []part) chain {
	c := chain{bytes: mem[:len(parts)*descriptorSize], addr: addr, n: len(parts)}
	for i, p := range parts {
		d := c.bytes[i*descriptorSize:]
		le := binary.LittleEndian
		le.PutUint32(d[0:], descriptorMagic|p.control)
		le.PutUint32(d[4:], uint32(p.n))
		le.PutUint64(d[8:], p.src)
		le.PutUint64(d[16:], p.dst)
		le.PutUint64(d[24:], 0)
		if i+1 < len(parts) {
			c.link(i, c.at(i+1), c.adjacent(i+1))
		}
	}
	return c
}

func (c chain) at(i int) uint64 { return c.addr + uint64(i*descriptorSize) }

// adjacent returns how many descriptors directly follow descriptor i without crossing 4 KiB: as many as a block fetch
// that starts at i may additionally fetch.
func (c chain) adjacent(i int) int {
	inPage := int((descriptorPage - c.at(i)%descriptorPage) / descriptorSize)
	return min(c.n-i, inPage, maxAdjacent+1) - 1
}

// link makes descriptor i continue at next, which is followed by adjacent more descriptors in its block. The engine
// must not be able to fetch i at this moment.
func (c chain) link(i int, next uint64, adjacent int) {
	d := c.bytes[i*descriptorSize:]
	control := (*uint32)(unsafe.Pointer(&d[0]))
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&d[24])), next)
	atomic.StoreUint32(control, atomic.LoadUint32(control)&^(0x3f<<8)|uint32(adjacent)<<8)
}

func roundUp(n int) int { return (n + descriptorPage - 1) &^ (descriptorPage - 1) }

func (c *channel) allocate(what string, size int) (Coherent, error) {
	m, err := c.dev.cfg.Alloc(size)
	if err != nil {
		return m, fmt.Errorf("%s channel %d: %d bytes of coherent memory for %s: %w", c.dir, c.index, size, what, err)
	}
	if len(m.Segments) != 1 || m.Segments[0].Addr%descriptorPage != 0 || len(m.Bytes) < size {
		_ = m.Close()
		return m, c.errorf(ErrMemory, "coherent memory for %s must be one segment of %d bytes, 4 KiB aligned, and is %v", what, size, m.Segments)
	}
	return m, nil
}
