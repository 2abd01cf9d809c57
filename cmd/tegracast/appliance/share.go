// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/share"
)

func init() { addSink((*sinkOpener).openShare) }

// openShare opens an output that other processes can map.
func (op *sinkOpener) openShare(_ *flow, o *output, c *config.Output, k *config.Share, own pipeline.Format) (pipeline.Sink, error) {
	sink, err := op.shares.Open(share.Config{
		Name: c.Name, Socket: k.Socket, Mode: k.FileMode(), Users: config.IDs(k.Users), Groups: config.IDs(k.Groups),
		Consumers: k.Consumers, Frames: k.Frames, Logger: op.log,
	}, own)
	switch {
	case errors.Is(err, share.ErrFormat):
		return nil, c.OpenAt.Errorf("%w", err)
	case err != nil:
		return nil, fmt.Errorf("output %s: %w", c.Name, err)
	}
	o.free = func() error { return op.shares.Close(c.Name) }
	return sink, nil
}
