// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// A plan is a recipe on the device: kernels, tables, and memory for the frames being processed.
type plan struct {
	recipe  *isp.Recipe
	program *program
	memory  arena
	base    args
	tone    uintptr        // address of the tone table
	tones   []uintptr      // addresses of the outputs' tone tables
	colors  [sizes]uintptr // pictures before sharpening, turned; 0 if not needed
	planes  [][]plane      // by output
	jobs    [inFlight]job
	turn    int                 // index of the job used last
	bands   [bandsInFlight]band // for a filling frame

	full, half int  // outputs that one kernel can make
	paired     bool // there are such outputs
}

// A job is a frame being processed.
type job struct {
	args   args              // for its kernels
	params [1]unsafe.Pointer // points to args
	in     uintptr           // copy of the input; 0 if in place
	outs   []uintptr         // pictures before they are copied
	inside *cudahost.Event   // marks how far the copy of the input has progressed
	worked *cudahost.Event   // marks how far the kernels have progressed
	report *cudahost.Buffer  // statistics from the device, or nil
	fence  *cudahost.Fence   // of the last frame of this job; nil: nothing to wait for

	progress progress
	made     []int // finished lines of each output
	copied   []int // lines of each output whose copy to host memory is enqueued

	sequence uint64
	times    pipeline.Times
	wanted   []*pipeline.Frame // the outputs being made
	finish   func(error)       // Stage.finish
}

// A progress records how much of a frame is done, in lines from its top or, for known defects, as their number.
type progress struct {
	input  int        // lines on the device
	black  int        // lines of samples
	known  int        // known defects repaired
	found  int        // lines in which defects were searched for
	colors [sizes]int // lines of the pictures before sharpening
}

// next returns the job whose turn it is.
func (p *plan) next() *job {
	p.turn = (p.turn + 1) % inFlight
	return &p.jobs[p.turn]
}

func (s *Stage) newPlan(r *isp.Recipe) (*plan, error) {
	p := &plan{recipe: r, base: newArgs(r), memory: arena{device: s.memory.Device}}
	var err error
	p.full, p.half, p.paired = pairOf(r)
	if p.program, err = newProgram(s.memory.Device, s.compiler, r, s.observe); err != nil {
		return nil, err
	}
	if p.tone, p.tones, err = p.memory.setTables(r, &p.base); err == nil {
		err = p.allocPlanes(s.observe)
	}
	for i := range r.Outputs {
		p.planes = append(p.planes, planes(&r.Outputs[i]))
	}
	for i := range p.jobs {
		if err == nil {
			err = s.open(p, &p.jobs[i])
		}
	}
	for i := range p.bands {
		p.bands[i].arrive = p.bands[i].final
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("isp on CUDA: %w", err), p.Close())
	}
	return p, nil
}

// allocPlanes allocates the intermediate results of kernels. Frames share them, because their kernels run one after
// another.
func (p *plan) allocPlanes(observe bool) (err error) {
	get := func(size int) uintptr {
		at, e := p.memory.alloc(size)
		err = errors.Join(err, e)
		return at
	}
	r := p.recipe
	plane := 2 * pitch(r.In.Width) * r.In.Height
	if needsPlane(r) {
		p.base.samples = get(plane)
	}
	if r.Threshold > 0 {
		p.base.searched = get(plane)
	}
	for _, o := range r.Outputs {
		if needsColors(r) && p.colors[o.Size] == 0 {
			p.colors[o.Size] = get(8 * o.Format.Width * o.Format.Height)
		}
	}
	if observe {
		p.base.statistics = get(gatheredSize)
	}
	return err
}

// open allocates the resources of one job.
func (s *Stage) open(p *plan, j *job) (err error) {
	j.params[0] = unsafe.Pointer(&j.args)
	j.wanted = make([]*pipeline.Frame, 0, len(p.recipe.Outputs))
	j.made, j.copied = make([]int, len(p.recipe.Outputs)), make([]int, len(p.recipe.Outputs))
	j.finish = func(err error) { s.finish(j, err) }
	if s.observe {
		if j.report, err = s.memory.AllocHost(gatheredSize, cudahost.Default); err != nil {
			return err
		}
	}
	if !s.staged {
		return nil
	}
	if j.in, err = p.memory.alloc(p.recipe.In.Size()); err != nil {
		return err
	}
	for _, o := range p.recipe.Outputs {
		at, err := p.memory.alloc(o.Format.Size())
		if err != nil {
			return err
		}
		j.outs = append(j.outs, at)
	}
	if j.inside, err = s.memory.Device.NewEvent(); err != nil {
		return err
	}
	j.worked, err = s.memory.Device.NewEvent()
	return err
}

// Close frees everything. No work may use it any more.
func (p *plan) Close() error {
	var errs []error
	for i := range p.jobs {
		j := &p.jobs[i]
		if j.report != nil {
			errs = append(errs, j.report.Close())
		}
		for _, e := range []*cudahost.Event{j.inside, j.worked} {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
	}
	return errors.Join(append(errs, p.memory.Close(), p.program.Close())...)
}

// gathered returns the job's report; its frame's work must have completed.
func (j *job) gathered() *gathered { return (*gathered)(unsafe.Pointer(&j.report.Bytes()[0])) }
