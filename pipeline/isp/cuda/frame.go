// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

func (s *Stage) prepareJob(j *job, in *pipeline.Frame) {
	p, a := s.plan, &j.args
	*a = p.base
	m, n := p.recipe.Factors(*s.gains.Load())
	a.m, a.n = bySite[int, int32](m), bySite[int, int32](n)
	if !needsPlane(p.recipe) && p.recipe.Shading == nil {
		for i := range a.m {
			a.m[i] <<= 16 - p.recipe.Samples.Bits
		}
	}
	at := in.Device
	if s.staged {
		at = j.in
	}
	a.setInput(p.recipe, at)
	j.progress = progress{}
	clear(j.made)
	clear(j.copied)
}

// enqueue enqueues all work that the first lines lines of a frame allow and that was not enqueued before.
//
// The kernels and the copy in read data that a PCI Express device has written. That is defined only after its
// completion was observed by the CPU and the observation was passed on to the launching thread (GPUDirect RDMA 12.9
// §11.7, docs/architecture.md). Here the source has observed it, and the graph's queue has passed the frame, or
// Frame.WaitLines the lines, to the calling goroutine.
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

// launch launches a kernel whose only parameter is the job's args, with the block size of kernels/args.cu.
func (s *Stage) launch(k *cudahost.Kernel, j *job, x, y int) error {
	return k.Launch(s.work, cudahost.Dim{X: x, Y: y}, cudahost.Dim{X: threadsX, Y: threadsY}, j.params[:]...)
}

// launchSamples launches a kernel for samples.
func (s *Stage) launchSamples(name string, j *job, x, y int) error {
	k, err := s.plan.program.samples(name)
	if err != nil {
		return err
	}
	return s.launch(k, j, x, y)
}

const (
	threadsX   = 32
	threadsY   = 8
	stripWidth = 240 // pixels that a warp makes at a time: STRIP of kernels/lines.cu
	leastLines = 4   // lines that it makes at least, about: it also reads lines above and below, which others read, too
)

// settle enqueues the repair of defects in memory, and sets args.there to the number of lines that are then repaired. A
// repair needs lines above and below.
func (s *Stage) settle(j *job, lines int) error {
	p, w, h := s.plan, s.plan.recipe.In.Width, s.plan.recipe.In.Height
	a, g := &j.args, &j.progress
	a.there = int32(lines)
	if !needsPlane(p.recipe) {
		return nil
	}
	a.samples = p.base.samples
	if err := s.launchLines("black", j, &g.black, lines, over(w, 4*threadsX)); err != nil {
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
		if err := s.launchLines("found", j, &g.found, lines, over(w, threadsX)); err != nil {
			return err
		}
		a.samples = a.searched
	}
	a.there = int32(lines)
	return nil
}

// before returns the number of lines whose neighbours at a distance of step are among the first lines lines of height.
func before(lines, step, height int) int {
	if lines == height {
		return height
	}
	return max(0, lines-step)
}

// launchLines launches a kernel that has one thread row per line, for the lines from *made to before lines, and sets
// *made to lines.
func (s *Stage) launchLines(name string, j *job, made *int, lines, across int) error {
	if lines == *made {
		return nil
	}
	j.args.begin, j.args.end = int32(*made), int32(lines)
	*made = lines
	return s.launchSamples(name, j, across, over(int(j.args.end-j.args.begin), threadsY))
}

// repairKnown launches the repair of the known defects that are before line lines and not yet repaired.
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
	return s.launchSamples("known", j, over(g.known-first, threadsX*threadsY), 1)
}

// over returns a/b rounded up.
func over(a, b int) int { return (a + b - 1) / b }

// gather enqueues the computation of the statistics and their copy to the job's report.
func (s *Stage) gather(j *job) error {
	a := &j.args
	if err := s.work.Clear(a.statistics, gatheredSize); err != nil {
		return err
	}
	if err := s.launchSamples("statistics", j, isp.ZoneColumns, isp.ZoneRows); err != nil {
		return err
	}
	return s.work.Read(j.report.Addr(), a.statistics, gatheredSize)
}

// pictures enqueues the lines of the wanted outputs that can now be made.
func (s *Stage) pictures(j *job, outs []*pipeline.Frame) error {
	at := func(i int) uintptr {
		if s.staged {
			return j.outs[i]
		}
		return outs[i].Device
	}
	paired, err := s.pair(j, outs, at)
	if err != nil {
		return err
	}
	for i, out := range outs {
		if out == nil || paired && (i == s.plan.full || i == s.plan.half) {
			continue
		}
		if err := s.picture(j, i, at(i)); err != nil {
			return err
		}
	}
	return nil
}

// picture enqueues the lines of output i, at an address, that can now be made.
func (s *Stage) picture(j *job, i int, at uintptr) error {
	p, a := s.plan, &j.args
	o := &p.recipe.Outputs[i]
	a.setOutput(o, at)
	a.colors, a.tone = p.colors[o.Size], p.tones[i]
	lines := s.lines(o, int(a.there))
	if needsColors(p.recipe) {
		var err error
		if lines, err = s.colors(j, o, lines); err != nil {
			return err
		}
	}
	fast := a.canBeFast(p.recipe) && a.canBeWritten(o)
	k, err := p.program.kernel(kernelKey{"picture", i, fast}, func() string { return picturePart(p.recipe, o, fast) })
	if err != nil {
		return err
	}
	return s.launchStrips(k, j, &j.made[i], lines)
}

// pair enqueues the lines that can now be made of the two outputs that one kernel makes, and reports whether it does: not if
// one of them is not wanted, or if memory is not aligned as the kernel needs it.
func (s *Stage) pair(j *job, outs []*pipeline.Frame, at func(i int) uintptr) (paired bool, err error) {
	p, a := s.plan, &j.args
	if !p.paired || outs[p.full] == nil || outs[p.half] == nil {
		return false, nil
	}
	first, second := &p.recipe.Outputs[p.full], &p.recipe.Outputs[p.half]
	a.setOutput(first, at(p.full))
	if !a.canBePaired(p.recipe, first, second, at(p.half)) {
		return false, nil
	}
	k, err := p.program.kernel(kernelKey{"pair", p.full, true}, func() string { return pairPart(first) })
	if err != nil {
		return false, err
	}
	a.setHalf(second, at(p.half))
	a.tone = p.tones[p.full]
	lines := s.lines(first, int(a.there))
	if lines < first.Format.Height {
		lines &^= 3 // whole lines of chroma of the half
	}
	err = s.launchStrips(k, j, &j.made[p.full], lines)
	j.made[p.half] = j.made[p.full] / 2
	return true, err
}

// colors enqueues the colours of an output's size, up to the given number of lines of the frame. It returns the number of
// lines of the output that can then be made.
func (s *Stage) colors(j *job, o *isp.RecipeOutput, lines int) (int, error) {
	turn, a := s.plan.recipe.Turn, &j.args
	fast := a.canBeFast(s.plan.recipe)
	k, err := s.plan.program.kernel(kernelKey{"colors", o.Size, fast}, func() string { return colorsPart(o.Size, fast) })
	if err != nil {
		return 0, err
	}
	width, height := turn.Size(o.Format.Width, o.Format.Height)
	a.outWidth, a.outHeight = int32(width), int32(height)
	err = s.launchStrips(k, j, &j.progress.colors[o.Size], lines)
	a.outWidth, a.outHeight = int32(o.Format.Width), int32(o.Format.Height)
	switch {
	case lines == height:
		return o.Format.Height, err
	case turn.Whole():
		return 0, err
	}
	return max(0, lines-2), err // sharpening needs the next line
}

// lines returns the number of lines of an output's size that can be made from the given number of sample lines, before
// sharpening and turning: an even number, or all.
func (s *Stage) lines(o *isp.RecipeOutput, samples int) int {
	r := s.plan.recipe
	if samples == r.In.Height {
		_, height := r.Turn.Size(o.Format.Width, o.Format.Height)
		return height
	}
	beside := 1 // lines above and below that demosaicing needs
	switch {
	case o.Size > 0 || r.Samples.Mosaic == pipeline.Mono:
		beside = 0
	case r.Demosaic == isp.Malvar:
		beside = 2
	}
	return before(samples, beside, r.In.Height) >> o.Size &^ 1
}

// launchStrips launches a kernel that has one warp per strip, for the lines from *made to lines-1, and sets *made to
// lines. If there are no such lines, it does nothing.
func (s *Stage) launchStrips(k *cudahost.Kernel, j *job, made *int, lines int) error {
	a := &j.args
	a.begin, a.end = int32(*made), int32(lines)
	height := lines - *made
	if height <= 0 {
		return nil
	}
	*made = lines
	across := over(int(a.outWidth), stripWidth)
	a.stripRows = int32(min(max(1, s.warps()/across), over(height, leastLines)))
	return s.launch(k, j, over(across*int(a.stripRows), threadsY), 1)
}

// warps returns the number of warps that make a picture.
func (s *Stage) warps() int {
	r := s.plan.recipe
	if s.linked && !needsPlane(r) && !needsColors(r) {
		return linkWarps(r.Samples)
	}
	if s.heavy() {
		return 2 * threadsY * s.memory.Device.Processors
	}
	return 3 * threadsY * s.memory.Device.Processors
}

// heavy reports whether lanes use many registers: MIN_BLOCKS of kernels/picture.cu is 2 then.
func (s *Stage) heavy() bool {
	return s.plan.recipe.Demosaic == isp.Malvar || s.plan.recipe.Shading != nil
}

// linkWarps returns the number of warps that read and write at the full speed of a link (measured at PCIe 5.0 x16;
// docs/cuda.md). Each has two lines of 256 samples in transit, 128 KiB in total, which is the link's bandwidth times
// its latency. More warps would wait together and then write together, leaving one direction of the link idle.
func linkWarps(p pipeline.Samples) int {
	switch {
	case p.Packed:
		return 192
	case p.Bits == 8:
		return 256
	}
	return 128
}

// note stores what finish needs: the input frame's number and times, and the wanted output frames.
func (j *job) note(in *pipeline.Frame, outs []*pipeline.Frame) {
	j.sequence, j.times, j.wanted = in.Sequence, in.Times, j.wanted[:0]
	for _, out := range outs { // a copy, because the caller reuses outs
		if out != nil {
			j.wanted = append(j.wanted, out)
		}
	}
}

// finish does the remaining work for a frame whose bytes are final: it sets Times.Processed, reports err (see
// reportLost), and, if err is nil, passes on the statistics.
func (s *Stage) finish(j *job, err error) {
	now := time.Now()
	for _, out := range j.wanted {
		out.Times.Processed = now
	}
	s.reportLost(err)
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
	result := s.stats.Result(s.config.Results, s.plan.recipe.White)
	for _, out := range j.wanted {
		out.Results = append(out.Results, result)
	}
}
