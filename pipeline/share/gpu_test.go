// SPDX-License-Identifier: Apache-2.0

package share

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline"
)

// summing adds up bytes, each multiplied by a weight that depends on its position, so that moving a byte changes the
// sum.
const summing = `
extern "C" __global__ void sum(const unsigned char *in, unsigned *out, int n) {
	int i = blockIdx.x * 256 + threadIdx.y * 32 + threadIdx.x;
	if (i < n) atomicAdd(out, in[i] * (unsigned)(2 * i + 1));
}`

// sumOf computes the same sum as the kernel.
func sumOf(b []byte) (sum uint32) {
	for i, v := range b {
		sum += uint32(v) * uint32(2*i+1)
	}
	return sum
}

// TestGPUSharedFrames lets the GPU of a consumer in another process read frames in place, from slots that this process
// has registered with CUDA too. Its kernel must see new contents of a slot that it has read before.
func TestGPUSharedFrames(t *testing.T) {
	if socket := os.Getenv("TEGRACAST_SHARED_SOCKET"); socket != "" {
		sumFrames(t, socket)
		return
	}
	s := newStudioIn(t, Config{Consumers: 1, Frames: 2}, cudatest.GPU(t))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGPUSharedFrames$")
	cmd.Env, cmd.Stderr = append(os.Environ(), "TEGRACAST_SHARED_SOCKET="+s.sink.cfg.Socket), os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	says := func(n int, b []byte) bool {
		want := fmt.Sprintf("frame %d sum %d", n, sumOf(b))
		if lines.Scan(); lines.Text() != want {
			t.Errorf("the other process says %q instead of %q", lines.Text(), want)
		}
		return lines.Text() == want
	}
	says(0, nil) // it has subscribed
	for n := 1; n <= 5*manySlots && !t.Failed(); n++ {
		await(t, "it is ready", func() bool { return s.idle(1) })
		var made *pipeline.Frame
		s.emitElsewhere(n, func(f *pipeline.Frame) { made = f })
		if !says(n, made.Bytes) {
			break
		}
		for i := range made.Bytes { // the consumer still holds it
			made.Bytes[i] = byte(i*n + 1)
		}
		if _, err := io.WriteString(in, "again\n"); err != nil {
			t.Error(err)
		}
		says(n, made.Bytes)
	}
	s.end()
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	for lines.Scan() {
		t.Log("the other process:", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// sumFrames runs in the other process. For each frame it prints the sum from its kernel, and again after it has read a
// line.
func sumFrames(t *testing.T, socket string) {
	t.Helper()
	cuda := cudatest.GPU(t)
	sum := summer(t, cuda)
	registered, ended, seen := 0, 0, map[*byte]bool{}
	k, err := Dial(t.Context(), ClientConfig{Socket: socket, Policy: pipeline.Block, Register: func(memory []byte) (uintptr, func() error, error) {
		pointer, unregister, err := cuda.Device.RegisterReadOnly(memory)
		registered++
		return pointer, func() error {
			ended++
			return unregister()
		}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("frame 0 sum 0")
	commands := bufio.NewScanner(os.Stdin)
	for {
		f, err := k.Next(t.Context())
		if errors.Is(err, ErrClosed) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen[&f.Bytes[0]] = true
		fmt.Printf("frame %d sum %d\n", f.Sequence, sum(f))
		commands.Scan()
		fmt.Printf("frame %d sum %d\n", f.Sequence, sum(f))
		if err := f.Release(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	if err := k.Close(); err != nil || registered != manySlots || ended != manySlots || len(seen) != manySlots {
		t.Errorf("%d slots, %d registrations, %d ended: %v", len(seen), registered, ended, err)
	}
	fmt.Printf("%s: %d slots, each registered once, and unregistered\n", cuda.Device, registered)
}

// summer returns a function that runs the kernel on a frame and returns the sum.
func summer(t *testing.T, cuda *cudahost.CUDA) func(*SharedFrame) uint32 {
	t.Helper()
	compiler, err := cuda.Device.NewCompiler("")
	if err != nil {
		t.Fatal(err)
	}
	code, _, err := compiler.Compile("sum.cu", summing)
	if err != nil {
		t.Fatal(err)
	}
	m, err := cuda.Device.Load(code)
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Kernel("sum")
	if err != nil {
		t.Fatal(err)
	}
	stream, streamErr := cuda.Device.NewStream()
	total, totalErr := cuda.AllocHost(4, cudahost.Mapped)
	if err := errors.Join(streamErr, totalErr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(stream.Close(), total.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return func(f *SharedFrame) uint32 {
		clear(total.Bytes())
		from, to, n := f.Device, total.DevicePointer(), int32(len(f.Bytes))
		args := []unsafe.Pointer{unsafe.Pointer(&from), unsafe.Pointer(&to), unsafe.Pointer(&n)}
		if err := k.Launch(stream, cudahost.Dim{X: (len(f.Bytes) + 255) / 256}, cudahost.Dim{X: 32, Y: 8}, args...); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		fence, err := stream.Fence()
		if err != nil {
			t.Fatal(err)
		}
		if err := fence.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint32(total.Bytes())
	}
}
