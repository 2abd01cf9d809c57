// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

func init() { addSink((*Appliance).openUCX) }

// openUCX opens an output that servers take by UCX.
func (a *Appliance) openUCX(_ *flow, o *output, c *config.Output, k *config.UCX, own pipeline.Format) (pipeline.Sink, error) {
	sink, err := a.fanout.Open(k.Listen, frames.StreamConfig{Name: c.Name, Checksum: *k.Checksum, Receivers: k.Receivers}, own, a.env.Log)
	switch {
	case errors.Is(err, frames.ErrFormat):
		return nil, c.OpenAt.Errorf("%w", err)
	case err != nil:
		return nil, fmt.Errorf("output %s: %w", c.Name, err)
	}
	o.free = func() error { return a.fanout.Close(c.Name) }
	return sink, nil
}
