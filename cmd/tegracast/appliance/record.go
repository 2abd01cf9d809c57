// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

func init() { addSink((*Appliance).openRecord) }

// openRecord opens a recording.
func (a *Appliance) openRecord(_ *flow, o *output, c *config.Output, k *config.Record, own pipeline.Format) (pipeline.Sink, error) {
	driver, err := a.files()
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", c.Name, err)
	}
	sink, err := record.New(record.Config{
		Directory: k.Directory, Name: c.Name, Source: c.Source, Library: "tegracast", Driver: driver,
		Duration: k.Duration.V, Size: int64(k.Size.V), Keep: int64(k.Keep.V), Sync: k.Sync.V,
		Configuration: a.text, Logger: a.env.Log.With("output", c.Name),
	}, own)
	if err != nil {
		return nil, c.OpenAt.Errorf("%w", err)
	}
	o.free = sink.Close
	return sink, nil
}

// dropStorage closes the files' driver; no output uses it any more.
func (a *Appliance) dropStorage() error {
	if a.storage == nil {
		return nil
	}
	err := a.storage.Close()
	a.storage = nil
	return err
}
