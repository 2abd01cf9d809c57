// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	_ "embed"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline"
)

// Set by make gpu-bench. Without them, TestGPUBench only shows that everything can be measured.
var (
	benchRounds = flag.Int("rounds", 2, "how often TestGPUBench measures each, in turn")
	benchOut    = flag.String("out", "", "put TestGPUBench's tables into this file, between its lines for them")
)

//go:embed testdata/bench.cu
var benchSource string

// The tables are between these lines of the file.
const benchBegin, benchEnd = "<!-- gpu-bench -->\n", "<!-- end of gpu-bench -->\n"

// TestGPUBench compares the isp's kernels with NPP and a copy, in-place frames with the host's link, and several frames
// in flight with one. All measurements take turns, and use the device's clock where the device works alone.
func TestGPUBench(t *testing.T) {
	b := newGPUBench(t)
	tables := fmt.Sprintf("%s, driver for CUDA %d.%d; medians of %d rounds, in turns\n", b.memory.Device, b.memory.Device.DriverVersion/1000,
		b.memory.Device.DriverVersion%1000/10, *benchRounds)
	sizes := benchSizes()
	large := sizes[1]
	for _, of := range []func() string{
		func() string { return b.chain(large[0], large[1]) },
		func() string { return b.outputs(sizes) },
		func() string { return b.link(large[0], large[1]) },
		func() string { return b.overlap(large[0], large[1]) },
	} {
		table := of()
		fmt.Println(table) // so that the results are known even if the next one fails
		tables += "\n" + table
	}
	if *benchOut == "" {
		return
	}
	text, err := os.ReadFile(*benchOut)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), benchBegin)
	_, tail, ended := strings.Cut(rest, benchEnd)
	if !ok || !ended {
		t.Fatalf("%s has no lines %q and %q", *benchOut, strings.TrimSpace(benchBegin), strings.TrimSpace(benchEnd))
	}
	if err := os.WriteFile(*benchOut, []byte(head+benchBegin+tables+benchEnd+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

func benchSizes() [][2]int {
	if onCPU() {
		return [][2]int{{64, 32}, {128, 64}}
	}
	return [][2]int{{1920, 1080}, {3840, 2160}, {7680, 4320}}
}

// A gpuBench measures contenders.
type gpuBench struct {
	t           *testing.T
	memory      *cudahost.CUDA
	driver      *bareDriver
	stream      *cudahost.Stream // for all work outside a Stage
	hold, pass  *cudahost.Kernel
	add, copy   *cudahost.Kernel
	begin, end  *mark
	beside      *mark
	turn        *cudahost.Stream // the second of two concurrent streams
	chart       *pipeline.Frame
	holdingTime time.Duration
	cache       string // folder for compiled kernels
}

func newGPUBench(t *testing.T) *gpuBench {
	memory := cudatest.GPU(t)
	b := &gpuBench{t: t, memory: memory, holdingTime: 2 * time.Millisecond, cache: t.TempDir(), chart: capture(t, memory)}
	for _, to := range []**cudahost.Stream{&b.stream, &b.turn} {
		s, err := memory.Device.NewStream()
		b.check(err)
		*to = s
		t.Cleanup(func() { b.check(s.Close()) })
	}
	b.driver = newBareDriver(t, b.stream)
	b.begin, b.end, b.beside = b.driver.newMark(), b.driver.newMark(), b.driver.newMark()
	compiler, err := memory.Device.NewCompiler("")
	b.check(err)
	code, _, err := compiler.Compile("bench.cu", benchSource)
	b.check(err)
	module, err := memory.Device.Load(code)
	b.check(err)
	t.Cleanup(func() { b.check(module.Close()) })
	for name, to := range map[string]**cudahost.Kernel{"hold": &b.hold, "pass": &b.pass, "copy": &b.copy, "integers": &b.add} {
		*to, err = module.Kernel(name)
		b.check(err)
	}
	for begin := time.Now(); !onCPU() && time.Since(begin) < time.Second; { // until the device has its full clock rate
		b.check(b.launch(b.add, b.stream, 8*memory.Device.Processors, benchArgs{turns: 4096, nanoseconds: 1 << 40}))
		b.check(b.stream.Synchronize())
	}
	return b
}

func (b *gpuBench) check(err error) {
	if err != nil {
		b.t.Helper()
		b.t.Fatal(err)
	}
}

// benchArgs mirrors Args of testdata/bench.cu.
type benchArgs struct {
	in, out             uintptr
	groups, nanoseconds uint64
	turns               uint32
}

func (b *gpuBench) launch(k *cudahost.Kernel, s *cudahost.Stream, blocks int, a benchArgs) error {
	return k.Launch(s, cudahost.Dim{X: blocks}, cudahost.Dim{X: threadsX, Y: threadsY}, unsafe.Pointer(&a))
}

// A contender enqueues the work for frame i on a stream, and possibly on a concurrent one.
type contender struct {
	name    string
	stream  *cudahost.Stream
	beside  *cudahost.Stream
	put     func(i int) error
	figures []float64 // microseconds per frame, by round
}

// once returns the time for the given number of frames in microseconds. The stream is held until all are enqueued, so
// this is the device's time only.
func (b *gpuBench) once(c *contender, frames int) float64 {
	b.check(b.launch(b.hold, c.stream, 1, benchArgs{nanoseconds: uint64(b.holdingTime)}))
	b.begin.on(c.stream)
	if c.beside != nil {
		b.begin.await(c.beside)
	}
	for i := range frames {
		b.check(c.put(i))
	}
	if c.beside != nil {
		b.beside.on(c.beside)
		b.beside.await(c.stream)
	}
	b.end.on(c.stream)
	return b.end.since(b.begin).Seconds() * 1e6 / float64(frames)
}

// measure lets the contenders take turns, starting with a different one in every round. The first round does not count.
func (b *gpuBench) measure(list []*contender, frames int) {
	for round := range *benchRounds + 1 {
		for i := range list {
			c := list[(i+round)%len(list)]
			if figure := b.once(c, frames); round > 0 {
				c.figures = append(c.figures, figure)
			}
		}
	}
}

// times returns the median over the rounds of the ratio of other's time to c's.
func (c *contender) times(other *contender) float64 {
	ratios := make([]float64, len(c.figures))
	for i := range ratios {
		ratios[i] = other.figures[i] / c.figures[i]
	}
	return middle(ratios)
}

// cells returns the median and the range as table cells.
func (c *contender) cells() string {
	return fmt.Sprintf("|%s|%.1f (%.1f–%.1f)|", c.name, middle(c.figures), slices.Min(c.figures), slices.Max(c.figures))
}

func middle(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return math.NaN()
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// deviceMemory returns the address of size bytes of device memory.
func (b *gpuBench) deviceMemory(size int) uintptr {
	m, err := b.memory.Device.AllocDevice(size)
	b.check(err)
	b.t.Cleanup(func() { b.check(m.Close()) })
	return m.Pointer
}
