package main

import (
	"context"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/cmd/tegracast/loopback"
	"github.com/tegracast/tegracast/tegra"
)

const loopbackUsage = `Usage: tegracast loopback [--device model|/dev/tegra_p2pN]
         [--memory host|cuda] [--direction h2c|c2h|both] [--size BYTES]
         [--count N] [--address ADDRESS] [--window BYTES] [--channel N]
         [--clock MHZ] [--json]

The validation run: a source surface is filled, the FPGA copies it through its
memory to a destination surface, and every byte is compared. With --memory cuda
kernels on the GPU fill and compare, and all of it is done twice: with ordinary
and with write-combined memory. --direction says
which way is measured; the bytes always go both ways, or there would be nothing
to compare. Bandwidth is checked against the engine's own counters, where it has
some. Status 0 when every byte is right, 1 after a mismatch or a fault.

A device file is one of the kernel module tegra_p2p. An FPGA with AMD's XDMA is
known by the core's own registers, whatever its PCI id is. It needs memory that
its memory-mapped channels reach: by default 64 KiB at address 0 of channel 0.
--address, --window and --channel name another one; large surfaces go through
it piece by piece. A card with channels of one direction is measured with
--direction; nothing is compared then. --clock is the frequency of the core's
data path (axi_aclk), from which the engine's own rate is calculated.
`

func loopbackCommand(ctx context.Context, e env, args []string) error {
	o := loopback.DefaultOptions()
	f := e.flags("loopback", loopbackUsage)
	f.StringVar(&o.Device, "device", o.Device, "the FPGA: model, or a device file of the kernel module such as "+tegra.DefaultDevice)
	f.StringVar(&o.Memory, "memory", o.Memory, "memory of the surfaces: host or cuda")
	f.StringVar(&o.Direction, "direction", o.Direction, "what is measured: h2c, c2h or both")
	f.IntVar(&o.Size, "size", o.Size, "`BYTES` of a surface, from 1 on")
	f.IntVar(&o.Count, "count", o.Count, "how often it is copied, `N`")
	f.Uint64Var(&o.Card.Address, "address", o.Card.Address, "`ADDRESS` of the memory on the card")
	f.IntVar(&o.Card.Window, "window", o.Card.Window, "`BYTES` that this memory has")
	f.IntVar(&o.Card.Channel, "channel", o.Card.Channel, "DMA channel `N` of each direction, 0 to 3")
	f.Float64Var(&o.Card.Clock, "clock", o.Card.Clock, "clock of the core's data path in `MHZ`")
	f.BoolVar(&o.JSON, "json", false, "print the result as JSON")
	if err := parse(f, args); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return command.UsageError{Err: err}
	}
	result, err := loopback.Run(ctx, e.Env, o)
	if err != nil {
		return err
	}
	return result.Print(e.Out, o)
}
