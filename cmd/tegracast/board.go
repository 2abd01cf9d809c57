package main

import (
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/edu"
	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// boardDevice is a PCI Express function that the kernel module drives, with its engine.
type boardDevice struct {
	capture.Hardware
	device *tegra.Device
	open   opener
}

const defaultBoard = "/dev/tegra_p2p0"

// openBoard opens a device file of the kernel module. What stands behind it is AMD's XDMA, which is found by its own
// registers when it is needed, unless the PCI id is that of another engine.
func openBoard(e env, path, backend string) (*boardDevice, error) {
	memory, err := cudahost.Open(cudahost.Config{Backend: backend, Logger: e.log})
	if err != nil {
		return nil, usageError{err}
	}
	device, err := tegra.Open(path)
	if err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	b := &boardDevice{device: device, Hardware: capture.Hardware{Interrupts: device, Pinner: device, Memory: memory, Reset: device.Reset}}
	b.Name = fmt.Sprintf("%s (PCI id %04x:%04x)", path, device.Info().Vendor, device.Info().Device)
	b.identify()
	if b.device.Info().Flags&uapi.InfoUnsafe != 0 {
		e.log.Warn("no IOMMU stands between the device and memory: whoever may open it owns the machine", "device", path)
	}
	if w := pinWarning(memory, b.device.Info()); w != "" {
		e.log.Warn(w, "device", path)
	}
	return b, nil
}

// pinWarning says why pinning may fail: the driver is asked before nv-p2p is
// (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED). Its no is not the last word, since drivers of before CUDA 11.3 do not know
// the question.
func pinWarning(memory cudahost.Allocator, info uapi.Info) string {
	c, cuda := memory.(*cudahost.CUDA)
	if !cuda || c.Device.GPUDirectRDMA || info.Flags&uapi.InfoNVP2P == 0 {
		return ""
	}
	return "the CUDA driver does not say that it supports GPUDirect RDMA, through which the module pins memory: if that is refused, " +
		"load tegra_p2p with backend=gup"
}

// identify fills in the BARs and the engine.
func (b *boardDevice) identify() {
	first := false // there is a BAR 0
	for _, w := range b.device.BARs() {
		first = first || w.Index == 0
		b.BARs = append(b.BARs, fpga.BAR{Index: w.Index, Size: w.Size, Registers: w})
	}
	b.open = openXDMA
	b.Halt = func(list []fpga.HaltOp) error { return b.device.SetHalt(haltOps(list)) }
	if info := b.device.Info(); info.Vendor == edu.Vendor && info.Device == edu.DeviceID && first {
		b.open = openEdu
	}
}

// haltOps are accesses as the kernel module takes them.
func haltOps(list []fpga.HaltOp) []uapi.HaltOp {
	out := make([]uapi.HaltOp, len(list))
	for i, op := range list {
		out[i] = uapi.HaltOp{Op: uapi.HaltW32, BAR: uint32(op.BAR), Offset: uint64(op.Offset), Value: uint64(op.Value)}
		if op.Await {
			out[i].Op, out[i].Mask = uapi.HaltPoll32, 0xffffffff
		}
	}
	return out
}

// Close gives the function back. What was pinned must have been unpinned.
func (b *boardDevice) Close() error { return errors.Join(b.device.Close(), b.Memory.Close()) }
