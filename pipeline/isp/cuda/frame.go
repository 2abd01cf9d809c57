// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// enqueue puts a frame's work on the streams.
//
// Its kernels, and the copy in, read what a PCI Express device has written. That is defined only after its completion
// was observed by the CPU and the observation was handed on to the launching thread (GPUDirect RDMA 12.9 §11.7,
// docs/architecture.md): the source observed it, and the graph's queue handed the frame to the goroutine that is here.
func (s *Stage) enqueue(j *job, in *pipeline.Frame, outs []*pipeline.Frame) error {
	p, a := s.plan, &j.args
	*a = p.base
	m, n := p.recipe.Factors(*s.gains.Load())
	a.m, a.n = bySite[int, int32](m), bySite[int, int32](n)
	at := in.Device
	if s.staged {
		at = j.in
		if err := s.copyIn(j, in); err != nil {
			return err
		}
	}
	a.setInput(p.recipe, at)
	if err := s.settle(j); err != nil {
		return err
	}
	if s.observe {
		if err := s.gather(j); err != nil {
			return err
		}
	}
	if err := s.pictures(j, outs); err != nil {
		return err
	}
	if s.staged {
		return s.copyOut(j, outs)
	}
	return nil
}

// launch runs a kernel whose only parameter are the job's args. Blocks are those of kernels/args.cu.
func (s *Stage) launch(k *cudahost.Kernel, j *job, x, y int) error {
	return k.Launch(s.work, cudahost.Dim{X: x, Y: y}, cudahost.Dim{X: threadsX, Y: threadsY}, j.params[:]...)
}

const (
	threadsX   = 32
	threadsY   = 8
	stripWidth = 256 // pixels that a warp makes at a time
)

// settle repairs defects, in memory.
func (s *Stage) settle(j *job) error {
	p, w, h := s.plan, s.plan.recipe.In.Width, s.plan.recipe.In.Height
	if !needsPlane(p.recipe) {
		return nil
	}
	if err := s.launch(p.program.black, j, over(w, 4*threadsX), over(h, threadsY)); err != nil {
		return err
	}
	if n := len(p.recipe.Defects); n > 0 {
		if err := s.launch(p.program.known, j, over(n, threadsX*threadsY), 1); err != nil {
			return err
		}
	}
	if p.recipe.Threshold > 0 {
		if err := s.launch(p.program.found, j, over(w, threadsX), over(h, threadsY)); err != nil {
			return err
		}
		j.args.samples = j.args.searched
	}
	return nil
}

// over is a/b rounded up.
func over(a, b int) int { return (a + b - 1) / b }

// gather makes the statistics and has them read into the job's report.
func (s *Stage) gather(j *job) error {
	a := &j.args
	if err := s.work.Clear(a.statistics, gatheredSize); err != nil {
		return err
	}
	if err := s.launch(s.plan.program.statistics, j, isp.ZoneColumns, isp.ZoneRows); err != nil {
		return err
	}
	return s.work.Read(j.report.Addr(), a.statistics, gatheredSize)
}

// pictures makes the outputs that are wanted.
func (s *Stage) pictures(j *job, outs []*pipeline.Frame) error {
	p, a := s.plan, &j.args
	var done [sizes]bool // which colours are in memory
	for i, out := range outs {
		if out == nil {
			continue
		}
		at := out.Device
		if s.staged {
			at = j.outs[i]
		}
		o := &p.recipe.Outputs[i]
		a.setOutput(o, at)
		a.colors, a.tone = p.colors[o.Size], p.tones[i]
		a.stripLines = int32(stripLines(o.Format.Width, o.Format.Height, s.warps()))
		strips := over(o.Format.Width, stripWidth) * over(o.Format.Height, int(a.stripLines))
		blocks := over(strips, threadsY)
		if k := p.program.colors[o.Size]; k != nil && !done[o.Size] {
			if err := s.launch(k, j, blocks, 1); err != nil {
				return err
			}
			done[o.Size] = true
		}
		if err := s.launch(p.program.pictures[i], j, blocks, 1); err != nil {
			return err
		}
	}
	return nil
}

// stripLines is how many lines a warp makes, even: as many as keep so many warps busy once, since it looks at lines above and
// below that another warp looks at too.
func stripLines(width, height, warps int) int {
	lines := over(height*over(width, stripWidth), warps)
	return max(4, (lines+1)&^1)
}

// warps is how many make a picture.
func (s *Stage) warps() int {
	r := s.plan.recipe
	if s.linked && !needsPlane(r) && r.Sharpen == 0 {
		return linkWarps(r.Samples)
	}
	if r.Demosaic == isp.Malvar || r.Shading != nil {
		return 2 * threadsY * s.memory.Device.Processors // their lanes have more registers
	}
	return 3 * threadsY * s.memory.Device.Processors
}

// linkWarps is how many read and write at the speed of a link (measured at PCIe 5.0 x16; docs/cuda.md). Each has two lines of
// 256 samples on their way, 128 KiB in all, which is the link's bandwidth times its latency; more of them wait together, then write
// together, and one direction of the link is idle.
func linkWarps(p pipeline.Samples) int {
	switch {
	case p.Packed:
		return 384 // what they read is not on its way while they compute
	case p.Bits == 8:
		return 256
	}
	return 128
}

// begin notes what finish needs of the frames.
func (j *job) begin(in *pipeline.Frame, outs []*pipeline.Frame) {
	j.sequence, j.times, j.wanted = in.Sequence, in.Times, j.wanted[:0]
	for _, out := range outs { // the caller uses outs again
		if out != nil {
			j.wanted = append(j.wanted, out)
		}
	}
}

// finish does what is left when the bytes are final.
func (s *Stage) finish(j *job, err error) {
	now := time.Now()
	for _, out := range j.wanted {
		out.Times.Processed = now
	}
	s.tell(err)
	if err != nil || !s.observe {
		return
	}
	s.stats.Sequence, s.stats.Times = j.sequence, j.times
	j.gathered().fill(&s.stats)
	if s.config.Observe != nil {
		s.config.Observe(&s.stats)
	}
	if s.config.Results == "" {
		return
	}
	result := s.stats.Result(s.config.Results)
	for _, out := range j.wanted {
		out.Results = append(out.Results, result)
	}
}
