// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"unsafe"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cudahost"
)

// A hand fills the surfaces of the validation run and compares them.
type hand interface {
	// fill writes bytes to src that depend on the seed, and to every byte of dst a value other than that of the byte of
	// src at the same position. fill and mismatch may return early, with an error, when ctx ends.
	fill(ctx context.Context, seed uint64) error
	// mismatch returns the first position at which the first size bytes of dst differ from the content of src, or at
	// which the bytes after them, where the pin was rounded up, were written. ok reports that there is none.
	mismatch(ctx context.Context, size int) (at int, ok bool, err error)
	Close() error
}

// newHand returns a hand that uses the GPU if the memory is CUDA's, so that the GPU's and the FPGA's views are
// compared, and otherwise one that uses the CPU. The compilation of kernels is interrupted when ctx ends.
func newHand(ctx context.Context, memory cudahost.Allocator, src, dst *capture.Surface) (hand, error) {
	if cuda, ok := memory.(*cudahost.CUDA); ok {
		cuda.Device.Interrupt = ctx.Done()
		h, err := newGPUHand(cuda, src, dst)
		if err != nil {
			return nil, err // not a nil *gpuHand
		}
		return h, nil
	}
	return &cpuHand{src: src.Buffer.Bytes(), dst: dst.Buffer.Bytes()}, nil
}

type cpuHand struct{ src, dst []byte }

// portion is the number of bytes that the CPU processes before it checks ctx: a few milliseconds' work.
const portion = 4 << 20

// portions calls do for consecutive parts of the surfaces, until ctx ends or do returns false.
func (h *cpuHand) portions(ctx context.Context, do func(from, to int) bool) error {
	for from := 0; from < len(h.src); from += portion {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !do(from, min(from+portion, len(h.src))) {
			return nil
		}
	}
	return nil
}

func (h *cpuHand) fill(ctx context.Context, seed uint64) error {
	rng := rand.NewPCG(seed, 0x1005bacc)
	return h.portions(ctx, func(from, to int) bool {
		fill(h.src[from:to], rng)
		invert(h.dst[from:to], h.src[from:to])
		return true
	})
}

func (h *cpuHand) mismatch(ctx context.Context, size int) (at int, ok bool, err error) {
	ok = true
	err = h.portions(ctx, func(from, to int) bool {
		for i := from; i < to && ok; i++ {
			if v := h.dst[i]; i < size && v != h.src[i] || i >= size && v != ^h.src[i] {
				at, ok = i, false
			}
		}
		return ok
	})
	return at, ok, err
}

// fill writes random bytes to b, whose length must be a multiple of 8.
func fill(b []byte, rng *rand.PCG) {
	for len(b) >= 8 {
		binary.NativeEndian.PutUint64(b, rng.Uint64())
		b = b[8:]
	}
}

// invert makes every byte of dst differ from src's.
func invert(dst, src []byte) {
	for i, v := range src {
		dst[i] = ^v
	}
}

// Close implements hand.
func (h *cpuHand) Close() error { return nil }

//go:embed loopback.cu
var loopbackSource string

// handArgs is struct Args of loopback.cu.
type handArgs struct {
	src, dst, wrong   uintptr
	words, size, seed uint64
}

// gpuHand is a hand that runs its own kernels on the GPU.
type gpuHand struct {
	args          handArgs
	stream        *cudahost.Stream
	module        *cudahost.Module
	fills, checks *cudahost.Kernel
	wrong         *cudahost.DeviceMemory
	report        *cudahost.Buffer
}

func newGPUHand(memory *cudahost.CUDA, src, dst *capture.Surface) (h *gpuHand, err error) {
	h = &gpuHand{args: handArgs{
		src: src.Buffer.DevicePointer(), dst: dst.Buffer.DevicePointer(), words: uint64(len(src.Buffer.Bytes()) / 4),
	}}
	if err := h.open(memory); err != nil {
		return nil, errors.Join(fmt.Errorf("kernels of the validation run: %w", err), h.Close())
	}
	return h, nil
}

func (h *gpuHand) open(memory *cudahost.CUDA) error {
	compiler, err := memory.Device.NewCompiler("")
	if err != nil {
		return err
	}
	code, _, err := compiler.Compile("loopback.cu", loopbackSource)
	if err != nil {
		return err
	}
	if h.module, err = memory.Device.Load(code); err != nil {
		return err
	}
	if h.fills, err = h.module.Kernel("fill"); err != nil {
		return err
	}
	if h.checks, err = h.module.Kernel("compare"); err != nil {
		return err
	}
	if h.stream, err = memory.Device.NewStream(); err != nil {
		return err
	}
	if h.wrong, err = memory.Device.AllocDevice(8); err != nil {
		return err
	}
	h.args.wrong = h.wrong.Pointer
	h.report, err = memory.AllocHost(8, cudahost.Default)
	return err
}

// launch runs a kernel, and returns when it is done and its writes are in memory, where the FPGA reads them next. The
// completion of the FPGA's writes was observed before on this goroutine (GPUDirect RDMA 12.9 §11.7).
func (h *gpuHand) launch(k *cudahost.Kernel) error {
	const threads, most = 256, 4096
	blocks := min(most, (h.args.words+threads-1)/threads)
	if err := k.Launch(h.stream, cudahost.Dim{X: int(blocks)}, cudahost.Dim{X: 32, Y: 8}, unsafe.Pointer(&h.args)); err != nil {
		return err
	}
	return h.stream.Synchronize()
}

func (h *gpuHand) fill(_ context.Context, seed uint64) error {
	h.args.seed = seed
	return h.launch(h.fills)
}

func (h *gpuHand) mismatch(_ context.Context, size int) (at int, ok bool, err error) {
	h.args.size = uint64(size)
	if err := h.stream.Clear(h.args.wrong, 8); err != nil {
		return 0, false, err
	}
	if err := h.launch(h.checks); err != nil {
		return 0, false, err
	}
	if err := h.stream.Read(h.report.Addr(), h.args.wrong, 8); err != nil {
		return 0, false, err
	}
	if err := h.stream.Synchronize(); err != nil {
		return 0, false, err
	}
	wrong := binary.NativeEndian.Uint64(h.report.Bytes())
	return int(^wrong), wrong == 0, nil
}

// Close releases everything.
func (h *gpuHand) Close() error {
	var errs []error
	if h.stream != nil {
		errs = append(errs, h.stream.Close())
	}
	if h.module != nil {
		errs = append(errs, h.module.Close())
	}
	if h.wrong != nil {
		errs = append(errs, h.wrong.Close())
	}
	if h.report != nil {
		errs = append(errs, h.report.Close())
	}
	return errors.Join(errs...)
}
