// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
)

func init() { addSink((*sinkOpener).openFPGAStream) }

// openFPGAStream opens an H2C channel of a card.
func (op *sinkOpener) openFPGAStream(_ *flow, o *output, c *config.Output, k *config.FPGAStream, own pipeline.Format) (pipeline.Sink, error) {
	sink, err := capture.NewFPGAOutput(context.Background(), capture.FPGAOutputConfig{
		Card: op.cards.list[c.Card].card, Channel: k.Channel, Format: own, Name: c.Name, Logger: op.log,
	})
	switch {
	case errors.Is(err, xdma.ErrChannel):
		return nil, c.OpenAt.Errorf("%w", err)
	case err != nil:
		return nil, fmt.Errorf("output %s: %w", c.Name, err)
	}
	o.free = sink.Close
	return sink, nil
}
