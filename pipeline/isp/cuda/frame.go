// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// begin makes a job ready for a frame.
func (s *Stage) begin(j *job, in *pipeline.Frame) {
	p, a := s.plan, &j.args
	*a = p.base
	m, n := p.recipe.Factors(*s.gains.Load())
	a.m, a.n = bySite[int, int32](m), bySite[int, int32](n)
	at := in.Device
	if s.staged {
		at = j.in
	}
	a.setInput(p.recipe, at)
	j.progress = progress{}
	clear(j.made)
	clear(j.copied)
}

// enqueue puts on the streams what can be made of the first lines lines of a frame, and was not made before.
//
// Its kernels, and the copy in, read what a PCI Express device has written. That is defined only after its completion
// was observed by the CPU and the observation was handed on to the launching thread (GPUDirect RDMA 12.9 §11.7,
// docs/architecture.md): the source observed it, and the graph's queue handed the frame, or Frame.WaitLines the lines, to the
// goroutine that is here.
func (s *Stage) enqueue(j *job, in *pipeline.Frame, outs []*pipeline.Frame, lines int) error {
	if s.staged {
		if err := s.copyIn(j, in, lines); err != nil {
			return err
		}
	}
	if err := s.settle(j, lines); err != nil {
		return err
	}
	if s.observe && lines == in.Format.Height {
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

// settle repairs defects, in memory, and notes how many lines of samples there are then. A repair looks at lines above and below.
func (s *Stage) settle(j *job, lines int) error {
	p, w, h := s.plan, s.plan.recipe.In.Width, s.plan.recipe.In.Height
	a, g := &j.args, &j.progress
	a.there = int32(lines)
	if !needsPlane(p.recipe) {
		return nil
	}
	a.samples = p.base.samples
	if err := s.launchLines(p.program.black, j, &g.black, lines, over(w, 4*threadsX)); err != nil {
		return err
	}
	step := 2
	if p.recipe.Samples.Mosaic == pipeline.Mono {
		step = 1
	}
	if len(p.recipe.Defects) > 0 {
		lines = before(lines, step, h)
		if err := s.repairKnown(j, lines); err != nil {
			return err
		}
	}
	if p.recipe.Threshold > 0 {
		lines = before(lines, step, h)
		if err := s.launchLines(p.program.found, j, &g.found, lines, over(w, threadsX)); err != nil {
			return err
		}
		a.samples = a.searched
	}
	a.there = int32(lines)
	return nil
}

// before is how many lines there are whose neighbours, as far as step, are among the first lines of height.
func before(lines, step, height int) int {
	if lines == height {
		return height
	}
	return max(0, lines-step)
}

// launchLines runs a kernel whose threads have a line each, on those from made on up to lines.
func (s *Stage) launchLines(k *cudahost.Kernel, j *job, made *int, lines, across int) error {
	if lines == *made {
		return nil
	}
	j.args.begin, j.args.end = int32(*made), int32(lines)
	*made = lines
	return s.launch(k, j, across, over(int(j.args.end-j.args.begin), threadsY))
}

// repairKnown repairs the known defects of the lines that were not repaired before.
func (s *Stage) repairKnown(j *job, lines int) error {
	list, g := s.plan.recipe.Defects, &j.progress
	first := g.known
	for g.known < len(list) && list[g.known].Y < lines {
		g.known++
	}
	if first == g.known {
		return nil
	}
	j.args.defects = s.plan.base.defects + uintptr(first*defectSize)
	j.args.defectCount = int32(g.known - first)
	return s.launch(s.plan.program.known, j, over(g.known-first, threadsX*threadsY), 1)
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

// pictures makes what can be made of the outputs that are wanted.
func (s *Stage) pictures(j *job, outs []*pipeline.Frame) error {
	p, a := s.plan, &j.args
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
		lines := s.lines(o, int(a.there))
		if k := p.program.colors[o.Size]; k != nil {
			if err := s.launchStrips(k, j, &j.progress.colors[o.Size], lines); err != nil {
				return err
			}
			if lines < o.Format.Height { // sharpening looks at the next one
				lines = max(0, lines-2)
			}
		}
		if err := s.launchStrips(p.program.pictures[i], j, &j.made[i], lines); err != nil {
			return err
		}
	}
	return nil
}

// lines is how many lines of an output's size can be made of so many of samples, before they are sharpened: an even number, or all.
func (s *Stage) lines(o *isp.RecipeOutput, samples int) int {
	r := s.plan.recipe
	if samples == r.In.Height {
		return o.Format.Height
	}
	beside := 1 // lines that demosaicing looks at
	switch {
	case o.Size > 0 || r.Samples.Mosaic == pipeline.Mono:
		beside = 0
	case r.Demosaic == isp.Malvar:
		beside = 2
	}
	return before(samples, beside, r.In.Height) >> o.Size &^ 1
}

// launchStrips runs a kernel whose warps have a strip each, on the lines from made on up to lines.
func (s *Stage) launchStrips(k *cudahost.Kernel, j *job, made *int, lines int) error {
	a := &j.args
	a.begin, a.end = int32(*made), int32(lines)
	height := lines - *made
	if height <= 0 {
		return nil
	}
	*made = lines
	width := int(a.outWidth)
	a.stripLines = int32(stripLines(width, height, s.warps()))
	strips := over(width, stripWidth) * over(height, int(a.stripLines))
	return s.launch(k, j, over(strips, threadsY), 1)
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
		return 192
	case p.Bits == 8:
		return 256
	}
	return 128
}

// note notes what finish needs of the frames.
func (j *job) note(in *pipeline.Frame, outs []*pipeline.Frame) {
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
