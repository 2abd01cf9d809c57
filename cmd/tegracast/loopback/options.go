// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/tegra"
)

// ModelName is the name of the FPGA model as a device, which needs no hardware.
const ModelName = "model"

// Options are the parameters of a validation run.
type Options struct {
	Device    string        // ModelName, or a device file of the kernel module
	Memory    string        // host, cuda, or auto: cuda if there is a GPU
	Direction string        // measured directions: h2c, c2h or both
	Size      int           // of a surface, in bytes
	Count     int           // number of copies
	Limit     time.Duration // time limit of one transfer
	JSON      bool
	Card      Card
}

// transferLimit is the time limit of one transfer: 1 GiB over the slowest link takes 10 s.
const transferLimit = 30 * time.Second

// DefaultOptions returns the command's defaults.
func DefaultOptions() Options {
	return Options{Device: ModelName, Memory: "host", Direction: "both", Size: 1 << 20, Count: 10, Limit: transferLimit, Card: DefaultCard()}
}

// Check refuses invalid values.
func (o Options) Check() error {
	switch {
	case o.Device != ModelName && !filepath.IsAbs(o.Device):
		return fmt.Errorf("--device %s: use model, or a device file such as %s", o.Device, tegra.DefaultDevice)
	case o.Memory != "host" && o.Memory != "cuda" && o.Memory != "auto":
		return fmt.Errorf("--memory %s: use host, cuda or auto", o.Memory)
	case o.Direction != "both" && o.Direction != "h2c" && o.Direction != "c2h":
		return fmt.Errorf("--direction %s: use h2c, c2h or both", o.Direction)
	case o.Size < 1 || o.Size > tegra.MaxPinSize:
		return fmt.Errorf("--size %d: must be from 1 to %d", o.Size, tegra.MaxPinSize)
	case o.Count < 1:
		return fmt.Errorf("--count %d: must be at least 1", o.Count)
	}
	return o.Card.check()
}

// ways reports whether the card has both directions, so that bytes can be compared. It refuses a card that lacks a
// direction to measure.
func (o Options) ways(e engine) (both bool, err error) {
	toCard, fromCard := e.has(fpga.H2C), e.has(fpga.C2H)
	switch {
	case toCard && fromCard:
		return true, nil
	case !toCard && !fromCard:
		return false, fmt.Errorf("the card has no memory-mapped channel %d: name another one with --channel", o.Card.Channel)
	case toCard && o.Direction != "h2c":
		return false, fmt.Errorf("the card has no memory-mapped channel %d from card to host: "+
			"use --direction h2c, which measures, but cannot compare", o.Card.Channel)
	case fromCard && o.Direction != "c2h":
		return false, fmt.Errorf("the card has no memory-mapped channel %d from host to card: "+
			"use --direction c2h, which measures, but cannot compare", o.Card.Channel)
	}
	return false, nil
}
