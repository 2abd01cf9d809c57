// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"sync"
	"sync/atomic"
)

// lastRefusals is the maximum number of refused accesses that Books lists.
const lastRefusals = 16

// A Refusal is a DMA access of the function that was refused.
type Refusal struct {
	Addr  uint64 // the first inaccessible bus address
	Len   int    // bytes of the whole access
	Write bool   // a write to the machine's memory, not a read
}

// Books holds the counters of a server since its creation.
type Books struct {
	Read, Written uint64    // bytes of the machine's memory that the function has read and written
	Refused       uint64    // refused accesses
	Wrong         uint64    // of these, those made after the connected machine had enabled bus mastering
	LastRefused   []Refusal // the latest refused accesses, oldest first, at most 16
	Reported      uint64    // refused accesses that the client repeated, so that the IOMMU reports them

	Maps, Unmaps uint64 // ranges mapped and unmapped
	Mapped       int    // ranges currently mapped

	Clients  uint64 // connections
	Requests uint64 // of all clients
	Errors   uint64 // requests answered with an error
	Resets   uint64 // of the function: by the client, or as Function Level Reset
	Raised   uint64 // interrupts sent
	Kept     uint64 // interrupts that had to wait for their vector

	LastError string // why the latest connection to end ended; "" if the client or Close ended it, or if none has ended
}

type memoryBooks struct {
	read, written, maps, unmaps atomic.Uint64

	mu      sync.Mutex
	refused uint64
	wrong   uint64
	last    [lastRefusals]Refusal // indexed by the number of the refused access modulo the size
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

type serverBooks struct {
	clients, requests, errors, resets, reported atomic.Uint64

	lastError atomic.Pointer[string]
}

// Books returns a snapshot of the counters.
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
