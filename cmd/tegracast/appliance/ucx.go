// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

func init() { addSink((*sinkOpener).openUCX) }

// openUCX opens an output that other machines receive by UCX.
func (op *sinkOpener) openUCX(_ *flow, o *output, c *config.Output, k *config.UCX, own pipeline.Format) (pipeline.Sink, error) {
	stream := frames.StreamConfig{Name: c.Name, Checksum: *k.Checksum, Receivers: k.Receivers, Allow: k.Allowed()}
	sink, err := op.ucx.Open(k.Listen, stream, own, op.log)
	if k.Open() && err == nil {
		op.log.Warn("ucx: everyone who reaches the address may take the frames, and can end this program: list those who may in ucx.allow",
			"output", c.Name, "address", k.Listen)
	}
	switch {
	case errors.Is(err, frames.ErrFormat):
		return nil, c.OpenAt.Errorf("%w", err)
	case err != nil:
		return nil, fmt.Errorf("output %s: %w", c.Name, err)
	}
	o.sends = k.Sends()
	o.free = func() error { return op.ucx.Close(c.Name) }
	return sink, nil
}
