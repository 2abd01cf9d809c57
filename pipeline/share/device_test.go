// SPDX-License-Identifier: Apache-2.0

package share

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline"
)

// TestDevice checks that each slot is registered once, when its first frame arrives, and unregistered by Close, and
// that a frame has the correct device address.
func TestDevice(t *testing.T) {
	const far = 1 << 40
	s := newStudio(t, Config{Consumers: 1, Frames: 2})
	registered := map[*byte]int{}
	k := s.dial(ClientConfig{Policy: pipeline.Block, Register: func(memory []byte) (uintptr, func() error, error) {
		first := &memory[0]
		registered[first]++
		return far + uintptr(len(registered))<<20, func() error {
			registered[first]--
			return nil
		}, nil
	}})
	where := map[*byte]uintptr{}
	for n := range 3 * manySlots {
		await(t, "it is ready", func() bool { return s.idle(1) })
		s.emitElsewhere(n, nil)
		f := next(t, k)
		if f.Device%4096 != 0 || f.Device&(1<<20-1) != 4096 || f.Device < far { // one page precedes each buffer
			t.Errorf("frame %d is at %#x", f.Sequence, f.Device)
		}
		first := &f.Bytes[0]
		if at, there := where[first]; there && at != f.Device {
			t.Errorf("frame %d is at %#x, the slot was at %#x", f.Sequence, f.Device, at)
		}
		where[first] = f.Device
		if err := f.Release(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range registered {
		if n != 1 {
			t.Errorf("a slot was registered %d times", n)
		}
	}
	if len(registered) != manySlots || len(where) != manySlots {
		t.Errorf("%d slots were registered, frames came in %d", len(registered), len(where))
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	for _, n := range registered {
		if n != 0 {
			t.Error("a slot is registered still")
		}
	}
}

// TestDeviceRefuses checks that Next returns the device's error, and that the frame is returned when the connection
// closes.
func TestDeviceRefuses(t *testing.T) {
	s := newStudio(t, Config{Consumers: 1, Frames: 2})
	refused := errors.New("the device cannot")
	k := s.dial(ClientConfig{Policy: pipeline.Block, Register: func([]byte) (uintptr, func() error, error) { return 0, nil, refused }})
	await(t, "it is ready", func() bool { return s.idle(1) })
	s.emit(1, nil)
	if _, err := k.Next(t.Context()); !errors.Is(err, refused) {
		t.Error(err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	await(t, "the frame is back", func() bool { return s.camera.pool.Leased() == 0 })
}

// TestSharedFramesOnCPU runs TestGPUSharedFrames with a stand-in for CUDA, whose kernels run on the CPU. It checks that
// the two processes agree on where the frames are, but nothing about a GPU's driver.
func TestSharedFramesOnCPU(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestGPUSharedFrames$", "-test.v")
	env := cudatest.StandIn(t, t.TempDir(), "../isp/cuda/testdata/device.cpp", "testdata")
	cmd.Env = slices.Concat(os.Environ(), env, []string{"TEGRACAST_GPU=1"})
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "SKIP") || !strings.Contains(string(out), "4 slots, each registered once") {
		t.Fatalf("%v\n%s", err, out)
	}
}
