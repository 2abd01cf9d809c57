// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"
	"path/filepath"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

func init() { addSource((*sourceOpener).openRecording) }

// openRecording opens a source that plays recordings.
func (op *sourceOpener) openRecording(c *config.Source, k *config.Recording) (source, error) {
	at := place{filepath.Dir(k.Paths()[0]), k.Storage}
	driver, err := op.storage.openDriver(at)
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", c.Name, err)
	}
	s, err := capture.NewRecording(capture.RecordingConfig{
		Files: k.Paths(), From: k.From.V, To: k.To.V, Unpaced: k.Unpaced(), Repeat: k.Repeat,
		Slots: c.Slots, Allocator: op.memory.slots(memoryFlags(c)), Driver: driver, Logger: op.log.With("source", c.Name),
	})
	if err != nil {
		return nil, c.OpenAt.Errorf("%w", at.explain(err))
	}
	m := driver.Mode()
	op.log.Info("the recording is read", "source", c.Name, "storage", modeName(m), "reason", m.Why)
	return s, nil
}
