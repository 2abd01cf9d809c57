// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/binary"
	"sync"
)

// blockRAM is the memory behind the memory-mapped channels and the bypass BAR.
type blockRAM struct {
	mu    sync.RWMutex
	bytes []byte
}

// in reports whether n bytes at card address addr are inside the RAM.
func (r *blockRAM) in(addr uint64, n int) bool {
	return addr <= uint64(len(r.bytes)) && uint64(n) <= uint64(len(r.bytes))-addr
}

func (r *blockRAM) read32(off uint32) uint32 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.in(uint64(off), 4) {
		return 0
	}
	return binary.LittleEndian.Uint32(r.bytes[off:])
}

func (r *blockRAM) write32(off, v uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.in(uint64(off), 4) {
		binary.LittleEndian.PutUint32(r.bytes[off:], v)
	}
}
