package cuda

import (
	"time"
	"unsafe"

	"tegracast/cudahost"
	"tegracast/pipeline"
	"tegracast/pipeline/isp"
)

// enqueue puts a frame's work on the streams.
//
// Its kernels, and the copy in, read what a PCI Express device has written. That is defined only after its completion
// was observed by the CPU and the observation was handed on to the launching thread (GPUDirect RDMA 12.9 §11.7,
// docs/architecture.md): the source observed it, and the graph's queue handed the frame to the goroutine that is here.
func (s *Stage) enqueue(j *job, in *pipeline.Frame, outs []*pipeline.Frame) error {
	p := s.plan
	a := p.base
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
	if err := s.settle(&a); err != nil {
		return err
	}
	if s.config.Observe != nil {
		if err := s.gather(&a, j); err != nil {
			return err
		}
	}
	if err := s.pictures(&a, j, outs); err != nil {
		return err
	}
	if s.staged {
		return s.copyOut(j, outs)
	}
	return nil
}

// launch runs a kernel whose only parameter are the args. Blocks are those of kernels/args.cu.
func (s *Stage) launch(k *cudahost.Kernel, a *args, x, y int) error {
	return k.Launch(s.work, cudahost.Dim{X: x, Y: y}, cudahost.Dim{X: threadsX, Y: threadsY}, unsafe.Pointer(a))
}

const (
	threadsX   = 32
	threadsY   = 8
	stripWidth = 256 // pixels that a warp makes at a time
)

// settle repairs defects, in memory.
func (s *Stage) settle(a *args) error {
	p, w, h := s.plan, s.plan.recipe.In.Width, s.plan.recipe.In.Height
	if !needsPlane(p.recipe) {
		return nil
	}
	if err := s.launch(p.program.black, a, over(w, 4*threadsX), over(h, threadsY)); err != nil {
		return err
	}
	if n := len(p.recipe.Defects); n > 0 {
		if err := s.launch(p.program.known, a, over(n, threadsX*threadsY), 1); err != nil {
			return err
		}
	}
	if p.recipe.Threshold > 0 {
		if err := s.launch(p.program.found, a, over(w, threadsX), over(h, threadsY)); err != nil {
			return err
		}
		a.samples = a.searched
	}
	return nil
}

// over is a/b rounded up.
func over(a, b int) int { return (a + b - 1) / b }

// gather makes the statistics and has them read into the job's report.
func (s *Stage) gather(a *args, j *job) error {
	if err := s.work.Clear(a.statistics, gatheredSize); err != nil {
		return err
	}
	if err := s.launch(s.plan.program.statistics, a, isp.ZoneColumns, isp.ZoneRows); err != nil {
		return err
	}
	return s.work.Read(j.report.Addr(), a.statistics, gatheredSize)
}

// pictures makes the outputs that are wanted.
func (s *Stage) pictures(a *args, j *job, outs []*pipeline.Frame) error {
	p := s.plan
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
		a.stripLines = int32(stripLines(o.Format.Width, o.Format.Height, s.memory.Device.Processors))
		strips := over(o.Format.Width, stripWidth) * over(o.Format.Height, int(a.stripLines))
		blocks := over(strips, threadsY)
		if k := p.program.colors[o.Size]; k != nil && !done[o.Size] {
			if err := s.launch(k, a, blocks, 1); err != nil {
				return err
			}
			done[o.Size] = true
		}
		if err := s.launch(p.program.pictures[i], a, blocks, 1); err != nil {
			return err
		}
	}
	return nil
}

// stripLines is how many lines a warp makes, even: as many as keep all multiprocessors busy once, since it looks at lines
// above and below that another warp looks at too.
func stripLines(width, height, processors int) int {
	const warps = 2 * threadsY // that a multiprocessor has at a time
	lines := over(height*over(width, stripWidth), warps*processors)
	return max(4, (lines+1)&^1)
}

// finisher is what is left when the bytes are final.
func (s *Stage) finisher(j *job, in *pipeline.Frame, outs []*pipeline.Frame) func(error) {
	var wanted []*pipeline.Frame
	for _, out := range outs { // the caller uses outs again
		if out != nil {
			out.Sequence, out.Times, out.Flags = in.Sequence, in.Times, in.Flags
			wanted = append(wanted, out)
		}
	}
	sequence, times := in.Sequence, in.Times
	return func(err error) {
		now := time.Now()
		for _, out := range wanted {
			out.Times.Processed = now
		}
		s.tell(err)
		if err == nil && s.config.Observe != nil {
			s.stats.Sequence, s.stats.Times = sequence, times
			j.gathered().fill(&s.stats)
			s.config.Observe(&s.stats)
		}
	}
}
