// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"log/slog"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

// memory is the memory of frames. A reload may close it and open another one.
type memory struct {
	allocator cudahost.Allocator // nil: not open
	interrupt <-chan struct{}    // aborts the compilation of kernels when closed
	log       *slog.Logger
}

// open opens the memory, unless it is open.
func (m *memory) open(c *config.Appliance) error {
	if m.allocator != nil {
		return nil
	}
	allocator, err := cudahost.Open(cudahost.Config{Backend: c.Memory, Logger: m.log})
	if err != nil {
		return c.MemoryAt.Errorf("%w", err)
	}
	m.allocator = allocator
	if gpu, ok := allocator.(*cudahost.CUDA); ok {
		gpu.Device.Interrupt = m.interrupt
	}
	return nil
}

// close closes the memory, of which nothing may be in use.
func (m *memory) close() error {
	if m.allocator == nil {
		return nil
	}
	err := m.allocator.Close()
	m.allocator = nil
	return err
}

// beside returns the configuration of the memory for an FPGA's frames, which comes from the same back end as m.
func (m *memory) beside() cudahost.Config {
	return cudahost.Config{Backend: m.allocator.Backend(), Logger: m.log, Beside: m.allocator}
}

// slots returns an allocator of slots with the given flags.
func (m *memory) slots(flags cudahost.Flags) pipeline.Allocator {
	return slotMemory{m.allocator, flags}
}

// slotMemory allocates slots.
type slotMemory struct {
	memory cudahost.Allocator
	flags  cudahost.Flags
}

// AllocSlot implements pipeline.Allocator.
func (s slotMemory) AllocSlot(f pipeline.Format) (pipeline.Slot, error) {
	b, err := s.memory.AllocHost(f.Size(), s.flags)
	if err != nil {
		return pipeline.Slot{}, err
	}
	file, offset := b.File()
	return pipeline.Slot{Bytes: b.Bytes(), Device: b.DevicePointer(), File: file, Offset: offset, Close: b.Close}, nil
}

// memoryFlags returns the flags of the memory for a source's frames.
func memoryFlags(c *config.Source) cudahost.Flags {
	if c.WriteCombined {
		return stageFlags(c) | cudahost.WriteCombined
	}
	return stageFlags(c)
}

// stageFlags returns the flags of the memory for the pictures that stages make from a source's frames: the GPU can
// address it, and other processes can map it if an output requires that.
func stageFlags(c *config.Source) cudahost.Flags {
	if c.Shared {
		return cudahost.Mapped | cudahost.Shared
	}
	return cudahost.Mapped
}
