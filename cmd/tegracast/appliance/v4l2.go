// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
)

func init() { addSource((*sourceOpener).openV4L2) }

// openV4L2 opens a camera with a driver of the kernel. A failure to open is not a mistake in the configuration.
func (op *sourceOpener) openV4L2(c *config.Source, k *config.V4L2) (source, error) {
	camera, err := capture.NewV4L2Camera(capture.V4L2Config{
		Device: k.Device, Name: c.Name, Recorder: op.recorder, Width: k.Width, Height: k.Height, Pixel: k.Pixel(), Rate: k.Rate.V,
		Exposure: k.Exposure.V, Gain: k.Gain, GainUnit: k.GainUnit, Controls: k.Controls, Shift: k.Shift, Triggered: k.Triggered,
		Slots: c.Slots, Memory: op.memory.allocator, Flags: memoryFlags(c), FrameTimeout: k.Timeout.V, Logger: op.log,
		Tight:   c.FormatKnown, // what follows was planned without padding
		OnFrame: func(f *pipeline.Frame) { op.lines.Seen(c.Name, f) },
	})
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", c.Name, err)
	}
	return camera, nil
}
