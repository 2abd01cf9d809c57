// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cudahost/cufile"
)

func init() { addSource((*Appliance).openRecording) }

// openRecording opens recordings to be played.
func (a *Appliance) openRecording(c *config.Source, k *config.Recording) (source, error) {
	driver, err := a.files()
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", c.Name, err)
	}
	s, err := capture.NewRecording(capture.RecordingConfig{
		Files: k.Paths(), From: k.From.V, To: k.To.V, Unpaced: k.Unpaced(), Repeat: k.Repeat,
		Slots: c.Slots, Allocator: slotMemory{a.memory, memoryFlags(c)}, Driver: driver, Logger: a.env.Log.With("source", c.Name),
	})
	if err != nil {
		return nil, c.OpenAt.Errorf("%w", err)
	}
	return s, nil
}

// files is the driver of recordings, which is opened when it is needed for the first time.
func (a *Appliance) files() (*cufile.Driver, error) {
	if a.storage == nil {
		driver, err := cufile.Open(cufile.Config{Logger: a.env.Log})
		if err != nil {
			return nil, err
		}
		a.storage = driver
	}
	return a.storage, nil
}
