// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// maxFunctions is the number of places on the bus for functions, from functionPort on.
const (
	maxFunctions = 8
	functionPort = 8
)

// functionTimeout is the time for which QEMU waits for an answer of a function's server, which may be stopped by a
// debugger. After that QEMU gives up the connection permanently.
const functionTimeout = 10 * time.Minute

// FunctionAddress returns the PCI address of function n of Config.Functions.
func FunctionAddress(n int) string { return fmt.Sprintf("0000:%02x:00.0", n+1) }

// prepareFunctions provides QEMU and, if the machine has a virtio IOMMU whose driver the kernel lacks, that driver.
func (c *Config) prepareFunctions(ctx context.Context) error {
	q, err := FetchQEMU(ctx, c.Log)
	if err != nil {
		return err
	}
	c.qemuVersion = q.Version
	if c.qemu, err = q.command(c.arch.qemu); err != nil || !c.arch.virtioIOMMU {
		return err
	}
	all, err := c.Kernel.modules()
	if err != nil {
		return err
	}
	if _, ok := all[virtioIOMMU]; !ok {
		c.iommuModule, err = buildVirtioIOMMU(ctx, c.Kernel, c.Log)
	}
	return err
}

// attachFunctions adds the functions' sockets to QEMU, and gives the machine RAM that their servers can map. Each port
// has a fixed place, because the IOMMU would take one of consecutive places.
func (m *Machine) attachFunctions(l *launcher) error {
	l.add("-object", fmt.Sprintf("memory-backend-memfd,id=ram,size=%dM,share=on", m.cfg.Memory), "-machine", "memory-backend=ram")
	for n, path := range m.cfg.Functions {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%w: socket of function %d: %s: %w", ErrMissing, n, path, err)
		}
		socket := os.NewFile(uintptr(fd), path)
		l.own = append(l.own, socket)
		slot := "slot" + strconv.Itoa(n)
		d := device{
			Driver: "vfio-user-pci", ID: "function" + strconv.Itoa(n), Bus: slot,
			Socket: &socketAddress{Type: "unix", Path: l.path(socket)}, Timeout: functionTimeout.Milliseconds(),
		}
		b, err := json.Marshal(d)
		if err != nil {
			return fmt.Errorf("vjetson: function %d: %w", n, err)
		}
		l.add("-device", fmt.Sprintf("pcie-root-port,id=%s,chassis=%d,slot=%d,addr=%d", slot, n+1, n, functionPort+n), "-device", string(b))
		m.slots = append(m.slots, d)
	}
	return nil
}
