// SPDX-License-Identifier: Apache-2.0

// Package device opens FPGAs: a PCI Express function that the kernel module drives, and the FPGA model in this process.
package device

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/edu"
	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// Board is a PCI Express function that the kernel module drives, opened as the hardware of cameras and outputs.
type Board struct {
	capture.Hardware
	Function *tegra.Device
}

// OpenBoard opens a device file of the kernel module, with memory as configured by cfg, and logs to cfg's logger. It
// does not check which engine the function has: AMD's XDMA is identified by its own registers when it is first used.
func OpenBoard(cfg cudahost.Config, path string) (*Board, error) {
	memory, err := cudahost.Open(cfg)
	if err != nil {
		return nil, err
	}
	device, err := tegra.Open(path)
	if err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	b := &Board{Function: device, Hardware: capture.Hardware{Interrupts: device, Pinner: device, Memory: memory, Reset: device.Reset}}
	b.Name = fmt.Sprintf("%s (PCI id %04x:%04x)", path, device.Info().Vendor, device.Info().Device)
	b.identify()
	if b.Function.Info().Flags&uapi.InfoUnsafe != 0 {
		cfg.Logger.Warn("no IOMMU protects memory from the device: whoever can open it controls the machine", "device", path)
	}
	if w := pinWarning(memory, b.Function.Info()); w != "" {
		cfg.Logger.Warn(w, "device", path)
	}
	return b, nil
}

// pinWarning returns a warning if CUDA memory is pinned through nv-p2p and the CUDA driver does not report that it
// supports that (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED), else "". It warns only, because drivers before CUDA
// 11.3 do not know the attribute.
func pinWarning(memory cudahost.Allocator, info uapi.Info) string {
	c, cuda := memory.(*cudahost.CUDA)
	if !cuda || c.Device.GPUDirectRDMA || info.Flags&uapi.InfoNVP2P == 0 {
		return ""
	}
	return "the CUDA driver does not report that it supports GPUDirect RDMA, through which the module pins memory: if that is refused, " +
		"load tegra_p2p with backend=gup"
}

// identify sets b.BARs and the function b.Halt.
func (b *Board) identify() {
	for _, w := range b.Function.BARs() {
		b.BARs = append(b.BARs, fpga.BAR{Index: w.Index, Size: w.Size, Registers: w})
	}
	b.Halt = func(list []fpga.HaltOp) error { return b.Function.SetHalt(haltOps(list)) }
}

// Edu reports whether the function is QEMU's edu device.
func (b *Board) Edu() bool {
	info := b.Function.Info()
	return info.Vendor == edu.Vendor && info.Device == edu.DeviceID && slices.ContainsFunc(b.BARs, func(bar fpga.BAR) bool { return bar.Index == 0 })
}

// haltOps converts accesses to the kernel module's type.
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

// Close closes the function and the memory. All memory must have been unpinned.
func (b *Board) Close() error { return errors.Join(b.Function.Close(), b.Memory.Close()) }
