// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"sync"
	"sync/atomic"
)

// lastRefusals is how many refused accesses the books name.
const lastRefusals = 16

// A Refusal is a DMA access of the function that was not done.
type Refusal struct {
	Addr  uint64 // the first bus address that the function may not reach
	Len   int    // bytes of the whole access
	Write bool
}

// Books is what a server has counted since it was made.
type Books struct {
	Read, Written uint64    // bytes of the machine's memory that the function has read and written
	Refused       uint64    // its accesses that were not done
	Wrong         uint64    // those of them that a machine has refused; the others came when there was none
	LastRefused   []Refusal // the last of them, oldest first, at most 16
	Reported      uint64    // those that the machine's IOMMU was shown

	Maps, Unmaps uint64 // ranges mapped and unmapped
	Mapped       int    // ranges that are mapped

	Clients  uint64 // connections
	Requests uint64 // of all clients
	Errors   uint64 // requests that were refused
	Resets   uint64 // of the function: by the client, or as Function Level Reset
	Raised   uint64 // interrupts sent
	Kept     uint64 // interrupts that had to wait for their vector

	LastError string // what ended the last connection, "" when the client has closed it
}

// memoryBooks counts accesses.
type memoryBooks struct {
	read, written, maps, unmaps atomic.Uint64

	mu      sync.Mutex
	refused uint64
	wrong   uint64
	last    [lastRefusals]Refusal // by its number modulo the size
}

func (b *memoryBooks) moved(n int, write bool) {
	if write {
		b.written.Add(uint64(n))
	} else {
		b.read.Add(uint64(n))
	}
}

func (b *memoryBooks) refuse(r Refusal, byMachine bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if byMachine {
		b.wrong++
	}
	b.last[b.refused%lastRefusals] = r
	b.refused++
}

// fill adds what the memory knows.
func (m *Memory) fill(b *Books) {
	b.Read, b.Written = m.books.read.Load(), m.books.written.Load()
	b.Maps, b.Unmaps = m.books.maps.Load(), m.books.unmaps.Load()
	m.mu.RLock()
	b.Mapped = len(m.ranges)
	m.mu.RUnlock()
	m.books.mu.Lock()
	defer m.books.mu.Unlock()
	b.Refused, b.Wrong = m.books.refused, m.books.wrong
	for i := b.Refused - min(b.Refused, lastRefusals); i < b.Refused; i++ {
		b.LastRefused = append(b.LastRefused, m.books.last[i%lastRefusals])
	}
}

// serverBooks counts messages.
type serverBooks struct {
	clients, requests, errors, resets, reported atomic.Uint64

	lastError atomic.Pointer[string]
}

// Books returns a snapshot.
func (s *Server) Books() Books {
	b := Books{
		Clients: s.books.clients.Load(), Requests: s.books.requests.Load(), Errors: s.books.errors.Load(),
		Resets: s.books.resets.Load(), Reported: s.books.reported.Load(),
	}
	if text := s.books.lastError.Load(); text != nil {
		b.LastError = *text
	}
	s.memory.fill(&b)
	s.irqs.fill(&b)
	return b
}
