// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/share"
)

func init() { addSink((*Appliance).openShare) }

// openShare opens an output that other processes map.
func (a *Appliance) openShare(_ *flow, o *output, c *config.Output, k *config.Share, own pipeline.Format) (pipeline.Sink, error) {
	sink, err := a.shares.Open(share.Config{
		Name: c.Name, Socket: k.Socket, Mode: k.FileMode(), Users: ids(k.Users), Groups: ids(k.Groups),
		Consumers: k.Consumers, Frames: k.Frames, Logger: a.env.Log,
	}, own)
	switch {
	case errors.Is(err, share.ErrFormat):
		return nil, c.OpenAt.Errorf("%w", err)
	case err != nil:
		return nil, fmt.Errorf("output %s: %w", c.Name, err)
	}
	o.free = func() error { return a.shares.Close(c.Name) }
	return sink, nil
}

// ids are numbers of users or groups as the kernel has them.
func ids(list []int) (all []uint32) {
	for _, id := range list {
		all = append(all, uint32(id))
	}
	return all
}
