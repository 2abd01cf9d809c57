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

// bandLines is the minimum number of further lines of a filling frame, except at its end, to wait for before kernels
// are launched on them. All lines that have arrived by then are processed (docs/cuda.md).
const bandLines = 32

// bandsInFlight is the maximum number of bands of a frame that are processed at a time: one being copied in, one in the
// kernels, one being copied out.
const bandsInFlight = 3

// A band is a group of lines being processed.
type band struct {
	outs   []*pipeline.Frame
	made   []int // number of final lines of each output after this band
	fence  *cudahost.Fence
	arrive func(error)
}

// final, if err is nil, marks the lines that are final after this band as readable.
func (b *band) final(err error) {
	for i, out := range b.outs {
		if err == nil && out != nil {
			out.Arrive(b.made[i])
		}
	}
}

// wait waits until the band is no longer being processed. It cannot be cancelled, because the device is writing.
func (b *band) wait() error {
	if b.fence == nil {
		return nil
	}
	err := b.fence.Wait(context.Background())
	b.fence = nil
	return err
}

// follow makes outs from a frame while it arrives. A band is launched when the arrival of its lines was observed, and
// handed on when the CPU has observed its completion.
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
		s.reportLost(err)
		return fmt.Errorf("isp on CUDA: %w", err)
	}
	j.note(in, outs)
	s.finish(j, nil)
	return nil
}

// launchBands launches band after band as lines arrive. Some may still be running when it returns.
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
