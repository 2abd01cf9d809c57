// SPDX-License-Identifier: Apache-2.0

package share

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// compile builds a program from a file, the C client and libraries.
func compile(t testing.TB, file string, libraries ...string) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "client")
	args := append([]string{"-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fsanitize=undefined", "-o", exe, file, "c/tegracast_share.c"}, libraries...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return exe
}

// TestOtherLanguages checks that the examples in C and Python get each frame, with its bytes and results.
func TestOtherLanguages(t *testing.T) {
	c := exec.Command("g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-xc++", "-")
	c.Stdin = strings.NewReader("#include \"c/tegracast_share.h\"\nint open_it(struct tgsh **s) \n{ return tgsh_open(s, \"a\", TGSH_BLOCK | TGSH_GROUPS, 1, nullptr, 0); }\n")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("g++: %v\n%s", err, out)
	}
	for name, command := range map[string][]string{"c": {compile(t, "c/example.c")}, "python": {"python3", "-B", "python/example.py"}} {
		t.Run(name, func(t *testing.T) {
			s := newStudio(t, Config{Consumers: 1, Frames: 2})
			c := exec.Command(command[0], append(command[1:], s.sink.cfg.Socket, "20")...)
			var out bytes.Buffer
			c.Stdout, c.Stderr = &out, &out
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			var want strings.Builder
			for n := 1; n <= 20; n++ {
				await(t, "the example is ready", func() bool { return s.idle(1) })
				s.emit(1, func(f *pipeline.Frame) {
					f.Group, f.Results = uint64(n)<<40, append(f.Results, pipeline.Result{Stage: "count"})
				})
				fmt.Fprintf(&want, "%d of %d 64x48 first %d last %d lost 0 [{'stage': 'count'}]\n", n, uint64(n)<<40, n, n)
			}
			if err := c.Wait(); err != nil || strings.ReplaceAll(strings.ReplaceAll(out.String(), `"`, "'"), "':'", "': '") != want.String() {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
}

// withNumPy returns a Python interpreter that has NumPy, or "".
func withNumPy() string {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import numpy").Run() == nil {
			return python
		}
	}
	return ""
}

// TestDevicesOfOtherLanguages checks the CUDA examples of docs/share.md in C, and in Python with NumPy, whose array is
// the frame itself. A stand-in for libcuda accepts each slot once, and rejects what a driver would.
func TestDevicesOfOtherLanguages(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libcuda.so")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, "../../cudahost/testdata/standin.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	for name, command := range map[string][]string{
		"c": {compile(t, "testdata/cuda.c", library)}, "python": {withNumPy(), "-B", "testdata/cuda.py"},
	} {
		t.Run(name, func(t *testing.T) {
			if command[0] == "" {
				t.Skip("NEEDS NumPy: python3-numpy of Debian (make setup-test)")
			}
			const frames = 3 * manySlots
			s := newStudio(t, Config{Consumers: 1, Frames: 2})
			c := exec.Command(command[0], append(command[1:], s.sink.cfg.Socket, fmt.Sprint(frames), library)...)
			var out bytes.Buffer
			c.Stdout, c.Stderr = &out, &out
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			var want strings.Builder
			for n := 1; n <= frames; n++ {
				await(t, "it is ready", func() bool { return s.idle(1) })
				s.emitElsewhere(n, nil)
				fmt.Fprintf(&want, "frame %d %d\n", n, n)
			}
			err, text := c.Wait(), out.String()
			if err != nil || strings.Count(text, "slot\n") != manySlots || strings.ReplaceAll(text, "slot\n", "") != want.String() {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// TestKilledConsumers kills consumers in C at random points. No slot may be lost, and no frame of another consumer.
func TestKilledConsumers(t *testing.T) {
	exe, times := compile(t, "testdata/victim.c"), 20
	if os.Getenv("TEGRACAST_LONG") != "" {
		times = 1000
	}
	s := newStudio(t, Config{Consumers: 3, Frames: 3})
	v := s.survive()
	holding := 0
	for i := range times {
		c := exec.Command(exe, s.sink.cfg.Socket, fmt.Sprint(i%2))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if i%4 > 0 { // otherwise it may die before it has sent anything
			await(t, "it has subscribed", func() bool { return len(s.sink.Stats().Consumers) == 2 })
		}
		for end := time.Now().Add(time.Duration(rand.IntN(10000)) * time.Microsecond); time.Now().Before(end); {
			v.emit(1)
		}
		held := func() (n int) {
			for _, c := range s.sink.Stats().Consumers[1:] {
				n += min(c.Held, 1)
			}
			return n
		}
		if i == times-1 && holding == 0 { // a slow machine may not have killed one in time
			await(t, "it holds a frame", func() bool { v.emit(1); return held() > 0 })
		}
		holding += held()
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		v.emit(2)
		if err := c.Wait(); err == nil || c.ProcessState.Exited() {
			t.Fatalf("the consumer has ended by itself: %v", c.ProcessState)
		}
		await(t, "what it had is back", func() bool { return len(s.sink.Stats().Consumers) == 1 && s.camera.pool.Leased() == 0 })
	}
	t.Logf("%d consumers were killed, %d while they held frames; %d frames reached the other one", times, holding, v.got.Load())
}
