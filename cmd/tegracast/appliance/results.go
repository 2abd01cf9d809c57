// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/results"
)

func init() { addSink((*sinkOpener).openResults) }

// openResults opens an output that sends the results of stages.
func (op *sinkOpener) openResults(_ *flow, o *output, c *config.Output, k *config.Results, _ pipeline.Format) (pipeline.Sink, error) {
	rc := results.Config{UDP: k.UDP, Listen: k.TCP, Logger: op.log.With("output", c.Name)}
	if k.Bus {
		rc.Publish = op.bus.Results(c.Name)
	}
	sink, err := results.New(rc)
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", c.Name, err)
	}
	o.free = sink.Close
	return sink, nil
}
