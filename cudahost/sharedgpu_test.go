// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
	"unsafe"
)

// Number of words in the buffer that TestGPUSharedWithAProcess shares, and how often its consumer registers the buffer
// to find leaks.
const (
	sharedWords  = 1 << 18
	sharedRounds = 500
)

// summing adds up words, each multiplied by a weight that depends on its position, so that moving a word changes the
// sum.
const summing = `
extern "C" __global__ void sum(const unsigned *in, unsigned *out, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) atomicAdd(out, in[i] * (unsigned)(2 * i + 1));
}`

// TestGPUSharedWithAProcess maps a buffer of this process read-only in another process, whose kernels read it in place.
// They must see what this process writes later.
func TestGPUSharedWithAProcess(t *testing.T) {
	if offset, err := strconv.Atoi(os.Getenv("TEGRACAST_SHARED")); err == nil {
		sumForAnother(t, uintptr(offset))
		return
	}
	c := gpu(t)
	b, err := c.AllocHost(4*sharedWords, Mapped|Shared)
	if err != nil {
		t.Fatal(err)
	}
	file, offset := b.File()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGPUSharedWithAProcess$")
	cmd.Env = append(os.Environ(), fmt.Sprint("TEGRACAST_SHARED=", offset))
	cmd.ExtraFiles, cmd.Stderr = []*os.File{file}, os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for round := range uint32(5) {
		var want uint32
		for i := range uint32(sharedWords) {
			v := (i + round) * 2654435761
			binary.LittleEndian.PutUint32(b.Bytes()[4*i:], v)
			want += v * (2*i + 1)
		}
		if _, err := io.WriteString(in, "sum\n"); err != nil {
			t.Error(err)
		}
		if lines.Scan(); lines.Text() != fmt.Sprint("sum ", want) {
			t.Errorf("round %d: the other process's kernel says %q, the sum is %d", round, lines.Text(), want)
			break
		}
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	for lines.Scan() {
		t.Log("the other process:", lines.Text())
	}
	if err := errors.Join(cmd.Wait(), b.Close()); err != nil {
		t.Error(err)
	}
}

// sumForAnother runs in the other process, which has the buffer's file as its descriptor 3. For each line it reads, it
// prints the sum computed by its kernel.
func sumForAnother(t *testing.T, offset uintptr) {
	t.Helper()
	c, m := gpu(t), mapToRead(t, 3)
	pointer, unregister, err := c.Device.RegisterReadOnly(m)
	if err != nil {
		t.Fatal(err)
	}
	k, s, total := summer(t, c)
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		sum(t, k, s, pointer+offset, total)
		fmt.Println("sum", binary.LittleEndian.Uint32(total.Bytes()))
	}
	if err := unregister(); err != nil {
		t.Error(err)
	}
	unregisterAll(t, c, m)
	if err := errors.Join(s.Close(), total.Close()); err != nil {
		t.Error(err)
	}
}

// summer compiles the kernel; total receives its result.
func summer(t *testing.T, c *CUDA) (*Kernel, *Stream, *Buffer) {
	t.Helper()
	_, k := compiled(t, c, summing, "sum")
	s, err := c.Device.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	total, err := c.AllocHost(4, Mapped)
	if err != nil {
		t.Fatal(err)
	}
	return k, s, total
}

// sum runs the kernel on the shared words and waits for it.
func sum(t *testing.T, k *Kernel, s *Stream, from uintptr, total *Buffer) {
	t.Helper()
	clear(total.Bytes())
	to, count := total.DevicePointer(), int32(sharedWords)
	err := k.Launch(s, Dim{X: sharedWords / 256}, Dim{X: 256}, unsafe.Pointer(&from), unsafe.Pointer(&to), unsafe.Pointer(&count))
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Fence()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := f.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// unregisterAll registers the mapping again and again: neither the GPU's memory in use nor locked pages may grow.
func unregisterAll(t *testing.T, c *CUDA, m []byte) {
	t.Helper()
	cycle := func(n int) (free int) {
		for range n {
			_, unregister, err := c.Device.RegisterReadOnly(m)
			if err != nil {
				t.Fatal(err)
			}
			if err := unregister(); err != nil {
				t.Fatal(err)
			}
		}
		free, _, err := c.Device.FreeMemory()
		if err != nil {
			t.Fatal(err)
		}
		return free
	}
	gone := 0
	for range 3 { // other processes may use the GPU, whereas a leak would recur every time
		before := cycle(10)
		if gone = before - cycle(sharedRounds); gone <= 4<<20 {
			fmt.Printf("%s: %d registrations of %d bytes leave %d bytes less of the GPU's memory\n", c.Device, sharedRounds, len(m), max(gone, 0))
			return
		}
	}
	t.Errorf("%d bytes of device memory are gone", gone)
}

// addressOf returns the address of the memory.
func addressOf(m []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m))) }
