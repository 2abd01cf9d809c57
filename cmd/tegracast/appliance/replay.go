// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

func init() { addSource((*sourceOpener).openReplay) }

// openReplay opens a file of YUV4MPEG2, or of headerless Bayer frames.
func (op *sourceOpener) openReplay(c *config.Source, k *config.Replay) (source, error) {
	s, err := capture.NewReplay(capture.ReplayConfig{
		Path: k.Path, Format: c.Format, Rate: k.Rate.V, Loop: !k.Once, Slots: c.Slots, Allocator: op.memory.slots(memoryFlags(c)),
	})
	if err != nil {
		return nil, c.OpenAt.Errorf("%w", err)
	}
	return s, nil
}
