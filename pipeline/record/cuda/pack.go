// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

//go:embed pack.cu
var source string

// packArgs is Args of pack.cu.
type packArgs struct {
	words, packed, over uintptr
	groups              uint64
}

// A Packer packs frames in CUDA memory. Only one goroutine may use it at a time.
type Packer struct {
	memory  *cudahost.CUDA
	samples pipeline.Samples
	stream  *cudahost.Stream
	module  *cudahost.Module
	kernel  *cudahost.Kernel
	over    *cudahost.Buffer
}

// NewPacker compiles the kernel for s, samples of 10 or 12 bits, and caches the code in the folder cache. The error
// wraps cudahost.ErrNoCUDA if there is no compiler.
func NewPacker(memory *cudahost.CUDA, s pipeline.Samples, cache string) (*Packer, error) {
	p := &Packer{memory: memory, samples: s}
	if err := p.open(cache); err != nil {
		return nil, errors.Join(fmt.Errorf("packing on CUDA: %w", err), p.Close())
	}
	return p, nil
}

func (p *Packer) open(cache string) error {
	compiler, err := p.memory.Device.NewCompiler(cache)
	if err != nil {
		return err
	}
	code, _, err := compiler.Compile("pack.cu", source, fmt.Sprintf("-DBITS=%d", p.samples.Bits))
	if err != nil {
		return err
	}
	if p.module, err = p.memory.Device.Load(code); err != nil {
		return err
	}
	if p.kernel, err = p.module.Kernel("pack"); err != nil {
		return err
	}
	if p.stream, err = p.memory.Device.NewStream(); err != nil {
		return err
	}
	p.over, err = p.memory.AllocHost(4, cudahost.Mapped)
	return err
}

// Close frees everything except the memory returned by Memory. A nil Packer is allowed.
func (p *Packer) Close() error {
	if p == nil {
		return nil
	}
	var errs []error
	if p.stream != nil {
		errs = append(errs, p.stream.Close())
	}
	if p.module != nil {
		errs = append(errs, p.module.Close())
	}
	if p.over != nil {
		errs = append(errs, p.over.Close())
	}
	return errors.Join(errs...)
}

// Memory allocates memory for Pack to write to. The caller must close it, before CUDA itself is closed.
func (p *Packer) Memory(size int) (*cudahost.Buffer, error) {
	return p.memory.AllocHost(size, cudahost.Mapped)
}

// Pack packs a frame, which must have no padding, into dst, which must come from Memory, and returns when the result is
// there. The error wraps pipeline.ErrDepth, like that of Samples.Pack, or comes from CUDA.
func (p *Packer) Pack(dst *cudahost.Buffer, f *pipeline.Frame) error {
	const threads, chunk, most = 256, 16, 4096
	samples := f.Format.Width * f.Format.Height
	binary.NativeEndian.PutUint32(p.over.Bytes(), 0)
	args := packArgs{
		words: f.Device, packed: dst.DevicePointer(), over: p.over.DevicePointer(), groups: uint64(samples * (p.samples.Bits - 8) / 8),
	}
	blocks := min(most, samples/chunk/threads+1)
	err := p.kernel.Launch(p.stream, cudahost.Dim{X: blocks}, cudahost.Dim{X: 32, Y: 8}, unsafe.Pointer(&args))
	if err == nil {
		err = p.stream.Synchronize()
	}
	if err != nil {
		return fmt.Errorf("packing on CUDA: %w", err)
	}
	if binary.NativeEndian.Uint32(p.over.Bytes()) != 0 {
		return fmt.Errorf("%w %d bits", pipeline.ErrDepth, p.samples.Bits)
	}
	return nil
}
