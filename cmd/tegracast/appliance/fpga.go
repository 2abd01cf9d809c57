// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"fmt"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
)

func init() { addSource((*sourceOpener).openFPGA) }

// openFPGA opens a camera of an FPGA. The first camera of a card opens its device file. A failure to open is not a
// mistake in the configuration.
func (op *sourceOpener) openFPGA(c *config.Source, k *config.FPGA) (source, error) {
	card, err := op.cards.open(c)
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", c.Name, err)
	}
	pixel, _ := k.Sensor.Pixel()
	camera, err := capture.NewFPGACamera(capture.FPGAConfig{
		Reset: func(ctx context.Context) (bool, error) { return op.lines.Reset(ctx, c.Card.Name) },
		Card:  card, Number: k.Camera, Name: c.Name, Recorder: op.recorder, Width: k.Width, Height: k.Height, Pixel: pixel,
		Rate: k.Rate.V, Exposure: k.Exposure.V, Gain: k.Gain, Slots: c.Slots, Flags: memoryFlags(c), Logger: op.log,
		Triggered: k.Triggered, Bare: c.Bare, Channel: k.Channel, FrameTimeout: k.Timeout.V, SliceLines: sliceOf(c),
		OnFrame: func(f *pipeline.Frame) { op.lines.Seen(c.Name, f) },
	})
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", c.Name, err)
	}
	return camera, nil
}

// sliceLines is the number of lines in a slice of a camera's frames.
const sliceLines = 16

// sliceOf returns the number of lines in a slice of a source's frames, or 0 if it delivers complete frames only.
func sliceOf(c *config.Source) int {
	if c.Slices {
		return sliceLines
	}
	return 0
}
