// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/tegracast/tegracast/cmd/tegracast/loopback"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/tegra"
)

const loopbackUsage = `Usage: tegracast loopback [--device model|/dev/tegra_p2pN]
         [--memory host|cuda|auto] [--direction h2c|c2h|both] [--size BYTES]
         [--count N] [--address ADDRESS] [--window BYTES] [--channel N]
         [--clock MHZ] [--json]

Runs the validation: it fills a source surface, has the FPGA copy it through its
memory to a destination surface, and compares every byte. With --memory cuda,
kernels on the GPU fill and compare, and the run is done twice: with ordinary
and with write-combined memory. --direction selects which direction is measured;
the bytes always go both ways, since they are compared at the end. The bandwidth
is checked against the engine's own counters, if it has them. Status 0 when
every byte is right, 1 after a mismatch, a fault or ctrl-C.

The device file belongs to the kernel module tegra_p2p. An FPGA with AMD's XDMA
is recognised by the core's registers, whatever its PCI id is. It needs memory
that its memory-mapped channels reach: by default 64 KiB at address 0 of channel
0. --address, --window and --channel select other memory; large surfaces go
through it in pieces. For a card with channels in one direction only, give that
--direction; nothing is compared then. --clock is the frequency of the core's
data path (axi_aclk), from which the engine's own rate is calculated.
`

func loopbackCommand(ctx context.Context, e env, args []string) error {
	o := loopback.DefaultOptions()
	f := e.flags("loopback", loopbackUsage)
	f.StringVar(&o.Device, "device", o.Device, "test `DEVICE`: model, or a device file of the kernel module such as "+tegra.DefaultDevice)
	f.StringVar(&o.Memory, "memory", o.Memory, "`KIND` of memory for the surfaces: host, cuda, or auto, which is cuda where there is a GPU")
	f.StringVar(&o.Direction, "direction", o.Direction, "measure this `DIRECTION`: h2c, c2h or both")
	f.Var((*size)(&o.Size), "size", "size of a surface in `BYTES`, such as 4096 or 16MiB")
	f.IntVar(&o.Count, "count", o.Count, "copy the surface `N` times")
	f.Uint64Var(&o.Card.Address, "address", o.Card.Address, "use the memory at `ADDRESS` on the card")
	f.Var((*size)(&o.Card.Window), "window", "use `BYTES` of that memory")
	f.IntVar(&o.Card.Channel, "channel", o.Card.Channel, "use DMA channel `N` of each direction, 0 to 3")
	f.Float64Var(&o.Card.Clock, "clock", o.Card.Clock, "frequency of the core's data path in `MHZ`")
	f.BoolVar(&o.JSON, "json", false, "print the result as JSON")
	if err := parse(f, args); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return terminal.UsageError{Err: err}
	}
	result, err := loopback.Run(ctx, e.Env, o)
	if err != nil {
		return err
	}
	return result.Print(e.Out, o)
}
