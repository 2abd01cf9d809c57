package main

import (
	"fmt"

	"github.com/tegracast/tegracast/cudahost"
)

// flags are those of the memory of the source's frames: the GPU has its address, too.
func (s *SourceConfig) flags() cudahost.Flags {
	if s.WriteCombined {
		return cudahost.Mapped | cudahost.WriteCombined
	}
	return cudahost.Mapped
}

// checkWriteCombined refuses whatever reads write-combined frames with the CPU, for which such memory is uncached
// (cudaHostAllocWriteCombined; GPUDirect RDMA 12.9 §13.4.3). Outputs need no look: one that reads a source's own frames
// sends results, and no pixel.
func (d *document) checkWriteCombined() error {
	for i := range d.Sources {
		s := &d.Sources[i]
		if !s.WriteCombined {
			continue
		}
		path := fmt.Sprintf("$.sources[%d].write_combined", i)
		switch {
		case s.File != nil:
			return d.errorAt(path, "the CPU itself reads the file into that memory: leave write_combined out")
		case !s.bare():
			return d.errorAt(path, "the CPU reads every frame to check the FPGA's CRC: leave write_combined out, or write stream: bare, which has none")
		case d.Memory != "cuda":
			return d.errorAt(path, "it is memory of cudaHostAlloc that only a GPU reads: write memory: cuda, or leave write_combined out")
		}
		if err := d.checkDeviceReaders(s.Name); err != nil {
			return err
		}
	}
	return nil
}

// checkDeviceReaders refuses stages that may read the frames of a source with the CPU.
func (d *document) checkDeviceReaders(source string) error {
	for i, c := range d.ISP {
		if c.From == source && c.Device != "cuda" {
			return d.errorAt(fmt.Sprintf("$.isp[%d].device", i), "the frames of %q are in write-combined memory, which the CPU must not read: write device: cuda", source)
		}
	}
	for i := range d.Kernels {
		c := &d.Kernels[i]
		if c.From == source && !c.findsResults() {
			return d.errorAt(fmt.Sprintf("$.kernels[%d].from", i), "the frames of %q are in write-combined memory, and the CPU hands them on while the kernel is in quarantine: write output: results, or read from an isp", source)
		}
	}
	return nil
}
