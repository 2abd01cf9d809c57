// SPDX-License-Identifier: Apache-2.0

package xdma_test

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/xdma"
)

// hostMemory is memory that the device reaches at bus addresses from first on. On a board, package tegra provides and
// pins it.
type hostMemory struct {
	bytes []byte
	first uint64
	used  int
}

// alloc returns size bytes in one segment, 4 KiB aligned.
func (h *hostMemory) alloc(size int) (xdma.Coherent, error) {
	at := h.used
	h.used += (size + 4095) &^ 4095
	if h.used > len(h.bytes) {
		return xdma.Coherent{}, errors.New("out of memory")
	}
	return xdma.Coherent{
		Memory: fpga.Memory{Bytes: h.bytes[at : at+size], Segments: []fpga.Segment{{Addr: h.first + uint64(at), Len: size}}},
		Close:  func() error { return nil },
	}, nil
}

// Read and Write are called by the device.
func (h *hostMemory) Read(addr uint64, p []byte) error {
	copy(p, h.bytes[addr-h.first:])
	return nil
}

func (h *hostMemory) Write(addr uint64, p []byte) error {
	copy(h.bytes[addr-h.first:], p)
	return nil
}

// A buffer is copied to the block RAM of the FPGA, which is simulated here, and back into another buffer.
func Example() {
	pages, err := unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer unix.Munmap(pages)
	host := &hostMemory{bytes: pages, first: 1 << 32}

	card, err := model.New(model.Loopback(host))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- card.Run(ctx) }()
	defer func() { cancel(); <-ended }()

	d, err := xdma.Open(xdma.Config{BARs: card.BARs(), Interrupts: card.Interrupts(), Alloc: host.alloc})
	if err != nil {
		fmt.Println(err)
		return
	}
	source, _ := host.alloc(4096)
	destination, _ := host.alloc(4096)
	copy(source.Bytes, "from here to the FPGA and back")
	for _, step := range []struct {
		direction fpga.Direction
		memory    fpga.Memory
	}{{fpga.H2C, source.Memory}, {fpga.C2H, destination.Memory}} {
		transfer, err := d.NewTransfer(step.direction, 0, step.memory, 0)
		if err != nil {
			fmt.Println(err)
			return
		}
		result, err := transfer.Run(ctx)
		fmt.Println(step.direction, result.Bytes, err)
		if err := transfer.Close(); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Printf("%s\n", destination.Bytes[:30])
	// Output:
	// h2c 4096 <nil>
	// c2h 4096 <nil>
	// from here to the FPGA and back
}
