// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

// gpu is the device of a Stage, with its own streams.
type gpu struct {
	memory   *cudahost.CUDA
	compiler *cudahost.Compiler
	stream   *cudahost.Stream // for kernels
	in, out  *cudahost.Stream // for copies, concurrent with the kernels; nil if the kernels use the frames in place
	config   Config
	staged   bool

	order       *Order
	begin, done *cudahost.Event  // mark the beginning and the end of a kernel
	atWork      *cudahost.Buffer // a word: 1 + the number of the job whose kernel has begun and not ended, or 0
}

func newGPU(memory *cudahost.CUDA, c *Config, o Options) (*gpu, error) {
	g := &gpu{memory: memory, config: *c, order: o.Order}
	g.staged = o.Transfer == Staged || o.Transfer == Auto && !memory.Device.Integrated
	var err error
	if g.compiler, err = memory.Device.NewCompiler(o.Cache); err != nil {
		return nil, err
	}
	if err = g.open(); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *gpu) open() (err error) {
	if g.atWork, err = g.memory.AllocHost(4, cudahost.Mapped); err != nil {
		return err
	}
	clear(g.atWork.Bytes())
	for _, to := range []**cudahost.Event{&g.begin, &g.done} {
		e, err := g.memory.Device.NewEvent()
		if err != nil {
			return err
		}
		*to = e
	}
	list := []**cudahost.Stream{&g.stream}
	if g.staged {
		list = append(list, &g.in, &g.out)
	}
	for _, to := range list {
		if *to, err = g.memory.Device.NewStream(); err != nil {
			return err
		}
	}
	return nil
}

// streams returns the streams in use.
func (g *gpu) streams() (list []*cudahost.Stream) {
	for _, s := range []*cudahost.Stream{g.in, g.stream, g.out} {
		if s != nil {
			list = append(list, s)
		}
	}
	return list
}

func (g *gpu) close() error {
	var errs []error
	for _, s := range g.streams() {
		errs = append(errs, s.Close())
	}
	g.order.leave(g.done)
	for _, e := range []*cudahost.Event{g.begin, g.done} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if g.atWork != nil {
		errs = append(errs, g.atWork.Close())
	}
	return errors.Join(errs...)
}

// cudaProgram is a program on the GPU.
type cudaProgram struct {
	gpu     *gpu
	module  *cudahost.Module
	kernel  *cudahost.Kernel
	args    arguments
	state   *cudahost.DeviceMemory     // nil if Config.State is 0
	found   *cudahost.DeviceMemory     // struct Results of prelude.cuh; nil if the kernel makes frames
	reports [inFlight]*cudahost.Buffer // copies of found at the end of each job
	copies  [inFlight]transfer
}

// transfer contains a job's copies of its frames on the device.
type transfer struct {
	in, out *cudahost.DeviceMemory
	inside  *cudahost.Event // marks that the input is on the device
	worked  *cudahost.Event // marks the end of the kernel
}

// build implements device.
func (g *gpu) build(s *source) (program, error) {
	code, _, err := g.compiler.Compile(s.file, s.text)
	if err != nil {
		return nil, err
	}
	p := &cudaProgram{gpu: g, args: arguments{parameters: g.config.parameterValues()}}
	if p.module, err = g.memory.Device.Load(code); err != nil {
		return nil, err
	}
	if err := p.open(s); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *cudaProgram) open(s *source) (err error) {
	c, device := &p.gpu.config, p.gpu.memory.Device
	var e *cudahost.Error
	const notFound = 500
	if p.kernel, err = p.module.Kernel(s.entry); errors.As(err, &e) && e.Code == notFound {
		return fmt.Errorf("%w: %s has no entry point %s: write extern \"C\" __global__ in front of it: %w", ErrConfig, s.file, s.entry, err)
	} else if err != nil {
		return err
	}
	if c.State > 0 {
		if p.state, err = device.AllocDevice(c.State); err != nil {
			return fmt.Errorf("state: %w", err)
		}
	}
	if !c.Results {
		return nil
	}
	if p.found, err = device.AllocDevice(c.resultsSize()); err != nil {
		return err
	}
	p.args.results = p.found.Pointer
	for i := range p.reports {
		if p.reports[i], err = p.gpu.memory.AllocHost(c.resultsSize(), cudahost.Default); err != nil {
			return err
		}
	}
	return nil
}

// plan implements program.
func (p *cudaProgram) plan(in pipeline.Format) error {
	if p.state != nil {
		if err := p.gpu.stream.Clear(p.state.Pointer, p.state.Size); err != nil {
			return err
		}
	}
	if !p.gpu.staged {
		return nil
	}
	for i := range p.copies {
		t := &p.copies[i]
		err := t.close()
		if err == nil {
			t.in, err = p.gpu.memory.Device.AllocDevice(in.Size())
		}
		if err == nil && !p.gpu.config.Results {
			t.out, err = p.gpu.memory.Device.AllocDevice(in.Size())
		}
		for _, e := range []**cudahost.Event{&t.inside, &t.worked} {
			if err == nil {
				*e, err = p.gpu.memory.Device.NewEvent()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// close frees what is allocated.
func (t *transfer) close() error {
	var errs []error
	for _, m := range []*cudahost.DeviceMemory{t.in, t.out} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	for _, e := range []*cudahost.Event{t.inside, t.worked} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	*t = transfer{}
	return errors.Join(errs...)
}

// run implements program.
//
// The kernel and the copy in read data that a PCI Express device may have written. That is defined only after its
// completion was observed by the CPU and the observation was passed on to the launching thread (GPUDirect RDMA 12.9
// §11.7). Here the source has observed it, and the graph's queue has passed the frame to the calling goroutine.
func (p *cudaProgram) run(number int, in, out *pipeline.Frame) (pipeline.Fence, error) {
	g, t := p.gpu, &p.copies[number]
	err := p.enqueue(number, in, out)
	last := g.stream
	if g.staged {
		if err != nil { // makes the fence follow all work already enqueued
			err = errors.Join(err, follow(g.in, g.stream, t.inside))
		}
		last = g.out
		err = errors.Join(err, follow(g.stream, last, t.worked))
		if err == nil && out != nil {
			err = last.CopyOut(address(out), t.out.Pointer, asOneLine(in.Format.Size()))
		}
	}
	fence, e := last.Fence()
	if e != nil {
		for _, s := range g.streams() {
			e = errors.Join(e, s.Synchronize())
		}
		return nil, errors.Join(err, e)
	}
	return fence, err
}

// follow makes later work on stream then wait for the work already on stream first. It uses e for that.
func follow(first, then *cudahost.Stream, e *cudahost.Event) error {
	if err := first.Mark(e); err != nil {
		return err
	}
	return then.After(e)
}

// enqueue enqueues a job's work, except for the copy out.
func (p *cudaProgram) enqueue(number int, in, out *pipeline.Frame) error {
	if in.Device == 0 || out != nil && out.Device == 0 {
		return fmt.Errorf("%w: a frame has no device address: allocate it with the CUDA memory back end", ErrFormat)
	}
	g, t := p.gpu, &p.copies[number]
	from, to := in.Device, uintptr(0)
	if out != nil {
		to = out.Device
	}
	if g.staged {
		from = t.in.Pointer
		if err := g.in.CopyIn(from, address(in), asOneLine(in.Format.Size())); err != nil {
			return err
		}
		if err := follow(g.in, g.stream, t.inside); err != nil {
			return err
		}
		if out != nil {
			to = t.out.Pointer
		}
	}
	if p.found != nil {
		if err := g.stream.Clear(p.found.Pointer, p.found.Size); err != nil {
			return err
		}
	}
	var state uintptr
	if p.state != nil {
		state = p.state.Pointer
	}
	p.args.set(in, from, to, state)
	if err := p.launch(number, in.Format); err != nil {
		return err
	}
	if p.found != nil {
		return g.stream.Read(p.reports[number].Addr(), p.found.Pointer, p.found.Size)
	}
	return nil
}

// launch launches the kernel, and before and after it the writes to atWork. Marking an event (begin, done) makes the
// bytes written before it visible to the CPU.
func (p *cudaProgram) launch(number int, f pipeline.Format) error {
	g := p.gpu
	set := func(v int) error { return g.stream.Fill(g.atWork.DevicePointer(), byte(v), 1) }
	return g.order.launch(g.stream, g.done, func() error {
		if err := errors.Join(set(1+number), g.stream.Mark(g.begin)); err != nil {
			return errors.Join(err, set(0))
		}
		err := p.kernel.Launch(g.stream, grid(f), cudahost.Dim{X: threadsX, Y: threadsY}, p.args.pointers()...)
		return errors.Join(err, set(0))
	})
}

// working implements program.
func (p *cudaProgram) working(number int) bool {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&p.gpu.atWork.Bytes()[0]))) == uint32(1+number)
}

// asOneLine describes all bytes of a frame as one line.
func asOneLine(size int) cudahost.Lines { return cudahost.Lines{Width: size, Height: 1, Stride: size} }

// address returns the CPU address of a frame's bytes.
func address(f *pipeline.Frame) uintptr { return uintptr(unsafe.Pointer(&f.Bytes[0])) }

// results implements program.
func (p *cudaProgram) results(number int) []byte { return p.reports[number].Bytes() }

// close implements program.
func (p *cudaProgram) close() error {
	var errs []error
	for i := range p.copies {
		errs = append(errs, p.copies[i].close())
		if p.reports[i] != nil {
			errs = append(errs, p.reports[i].Close())
		}
	}
	for _, m := range []*cudahost.DeviceMemory{p.state, p.found} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, p.module.Close())...)
}
