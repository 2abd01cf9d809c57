// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

// bandLines is how many lines of a frame that fills are waited for, at least, before kernels are launched on them: all that have
// come then are taken (docs/cuda.md).
const bandLines = 32

// bandsInFlight is how many bands of a frame may be in work: one on its way in, one in the kernels, one on its way out.
const bandsInFlight = 3

// A band is some lines of a frame in work.
type band struct {
	outs   []*pipeline.Frame
	made   []int // lines of each that are final behind it
	fence  *cudahost.Fence
	arrive func(error)
}

// final hands on the lines that are final now.
func (b *band) final(err error) {
	for i, out := range b.outs {
		if err == nil && out != nil {
			out.Arrive(b.made[i])
		}
	}
}

// wait waits until the band is not in work, if it was: nothing cancels what the device writes.
func (b *band) wait() error {
	if b.fence == nil {
		return nil
	}
	err := b.fence.Wait(context.Background())
	b.fence = nil
	return err
}

// follow makes outs of a frame while it arrives. A band is launched when its lines were observed, and handed on when the CPU has
// observed that it is made.
func (s *Stage) follow(ctx context.Context, j *job, in *pipeline.Frame, outs []*pipeline.Frame) error {
	j.fence = nil
	err := s.launchBands(ctx, j, in, outs)
	for i := range s.plan.bands {
		err = cmp.Or(err, s.plan.bands[i].wait())
	}
	if err == nil {
		err = in.WaitWhole(ctx)
	}
	if err != nil {
		s.tell(err)
		return fmt.Errorf("isp on CUDA: %w", err)
	}
	j.note(in, outs)
	s.finish(j, nil)
	return nil
}

// launchBands launches band after band as lines come. Some may be in work when it returns.
func (s *Stage) launchBands(ctx context.Context, j *job, in *pipeline.Frame, outs []*pipeline.Frame) error {
	height := in.Format.Height
	for lines, turn := 0, 0; lines < height; turn = (turn + 1) % bandsInFlight {
		var err error
		if lines, err = in.WaitLines(ctx, min(lines+s.bandLines, height)); err != nil {
			return err
		}
		b := &s.plan.bands[turn]
		if err := b.wait(); err != nil {
			return err
		}
		if err := s.enqueue(j, in, outs, lines); err != nil {
			return errors.Join(err, s.synchronize())
		}
		b.outs, b.made = outs, append(b.made[:0], j.made...)
		if b.fence, err = s.last().FenceThen(b.arrive); err != nil {
			return errors.Join(err, s.synchronize())
		}
	}
	return nil
}
