// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"sync"
	"testing"

	"github.com/tegracast/tegracast/fpga/vfiouser"
)

// servedEdu is the part of QEMU's edu device that the probe module uses, as a function served by this process.
type servedEdu struct {
	memory vfiouser.Memory
	server *vfiouser.Server

	mu               sync.Mutex
	live, status     uint32
	source, to, size uint32
	buffer           [4 << 10]byte
}

const eduBuffer = 0x40000 // its address for the DMA engine

// serveEdu serves the device until the test ends.
func serveEdu(t *testing.T) *servedEdu {
	t.Helper()
	e := &servedEdu{}
	f := vfiouser.Function{Vendor: 0x1234, Device: 0x11e8, Class: 0x00ff00, MSI: 1, BARs: []vfiouser.BAR{{Index: 0, Size: 1 << 20, Registers: e}}}
	var err error
	if e.server, err = vfiouser.New(f, &e.memory); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.server.Run(context.Background()) }()
	t.Cleanup(func() {
		e.server.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *servedEdu) Read32(off uint32) uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return map[uint32]uint32{0: 0x010000ed, 4: ^e.live, 0x24: e.status}[off]
}

func (e *servedEdu) Write32(off, v uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch off {
	case 0x04:
		e.live = v
	case 0x64:
		e.status &^= v
	case 0x80:
		e.source = v
	case 0x88:
		e.to = v
	case 0x90:
		e.size = v
	case 0x98:
		e.transfer(v&2 != 0)
	}
}

// transfer moves the bytes, if the machine's IOMMU permits it, and raises the interrupt.
func (e *servedEdu) transfer(toRAM bool) {
	if toRAM {
		_ = e.memory.Write(uint64(e.to), e.buffer[e.source-eduBuffer:][:e.size]) // the server counts refused accesses
	} else {
		_ = e.memory.Read(uint64(e.source), e.buffer[e.to-eduBuffer:][:e.size])
	}
	e.status |= 0x100
	e.server.Raise(0)
}

// testFunctions checks that two functions work like QEMU's own device in the guest, each in its own slot.
func testFunctions(t *testing.T, k Kernel, probe string) {
	first, second := serveEdu(t), serveEdu(t)
	m := StartTest(t, Config{Kernel: k, Functions: []string{first.server.Path(), second.server.Path()}})
	useEdu(t, m, probe, func() {
		ctx := t.Context()
		at := "/sys/bus/pci/drivers/vjetson_probe_edu/" + FunctionAddress(1) + "/"
		if out, err := m.Shell(ctx, "echo 1 > "+at+"transfer && cat "+at+"counts"); err != nil || out != "1 2\n" {
			t.Errorf("the second function: %q %v", out, err)
		}
		if err := m.HotUnplugSlot(ctx, 1); err != nil {
			t.Error(err)
		}
		if out, err := m.Shell(ctx, "ls /sys/bus/pci/drivers/vjetson_probe_edu | grep 0000"); err != nil || out != SlotAddress+"\n" {
			t.Errorf("when the second function has gone: %q %v", out, err)
		}
	})
	if b := first.server.Books(); b.Refused == 0 || b.Clients != 2 || second.server.Books().Refused > 0 {
		t.Errorf("%+v; %+v", b, second.server.Books())
	}
}
