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

// make gpu-bench sets these; without, TestGPUBench only shows that all can be measured.
var (
	benchRounds = flag.Int("rounds", 2, "how often TestGPUBench measures each, in turn")
	benchOut    = flag.String("out", "", "put TestGPUBench's tables into this file, between its lines for them")
)

//go:embed testdata/bench.cu
var benchSource string

// The tables stand between these lines of the file.
const benchBegin, benchEnd = "<!-- gpu-bench -->\n", "<!-- end of gpu-bench -->\n"

// TestGPUBench measures the isp's kernels against NPP and a copy, in-place frames against the host's link, and frames in work
// at a time against one: all in turns, with the device's clock where the device works alone.
func TestGPUBench(t *testing.T) {
	b := newGPUBench(t)
	tables := fmt.Sprintf("%s, driver for CUDA %d.%d; medians of %d rounds, in turns\n", b.memory.Device, b.memory.Device.DriverVersion/1000,
		b.memory.Device.DriverVersion%1000/10, *benchRounds)
	parts := []func(w, h int) string{b.chain, b.link, b.overlap}
	for _, part := range parts {
		for _, size := range benchSizes() {
			table := part(size[0], size[1])
			fmt.Println(table) // what was measured is known even if the next one fails
			tables += "\n" + table
		}
	}
	table := b.integers()
	fmt.Println(table)
	if tables += "\n" + table; *benchOut == "" {
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
	return [][2]int{{1920, 1080}, {3840, 2160}}
}

// A gpuBench measures contenders.
type gpuBench struct {
	t           *testing.T
	memory      *cudahost.CUDA
	driver      *bareDriver
	stream      *cudahost.Stream // of all that is not a Stage's
	hold, pass  *cudahost.Kernel
	add         *cudahost.Kernel
	begin, end  *mark
	beside      *mark
	turn        *cudahost.Stream // the second of two that work beside one another
	chart       *pipeline.Frame
	holdingTime time.Duration
	cache       string // of compiled kernels
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
	for name, to := range map[string]**cudahost.Kernel{"hold": &b.hold, "pass": &b.pass, "integers": &b.add} {
		*to, err = module.Kernel(name)
		b.check(err)
	}
	for begin := time.Now(); !onCPU() && time.Since(begin) < time.Second; { // until the clocks are those of work
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

// benchArgs is Args of testdata/bench.cu.
type benchArgs struct {
	in, out             uintptr
	groups, nanoseconds uint64
	turns               uint32
}

func (b *gpuBench) launch(k *cudahost.Kernel, s *cudahost.Stream, blocks int, a benchArgs) error {
	return k.Launch(s, cudahost.Dim{X: blocks}, cudahost.Dim{X: threadsX, Y: threadsY}, unsafe.Pointer(&a))
}

// A contender puts the work of frame i on a stream, and perhaps on one that works beside it.
type contender struct {
	name    string
	stream  *cudahost.Stream
	beside  *cudahost.Stream
	put     func(i int) error
	figures []float64 // microseconds a frame, by round
}

// once is the time of frames frames in microseconds. The stream is held until all are enqueued, so that it is the device's.
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

// measure takes turns, and begins with another one in every round. The first round is not counted.
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

// times are the medians of the rounds' ratios: how often c's time is in other's.
func (c *contender) times(other *contender) float64 {
	ratios := make([]float64, len(c.figures))
	for i := range ratios {
		ratios[i] = other.figures[i] / c.figures[i]
	}
	return middle(ratios)
}

// cells are the median and the spread.
func (c *contender) cells() string {
	return fmt.Sprintf("| %s | %.1f | %.1f–%.1f |", c.name, middle(c.figures), slices.Min(c.figures), slices.Max(c.figures))
}

func middle(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return math.NaN()
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// integers measures how many integer instructions the device does.
func (b *gpuBench) integers() string {
	const perTurn, warps = 24, 8
	turns, blocks := 4096, 8*b.memory.Device.Processors // as many threads as a multiprocessor has
	if onCPU() {
		turns, blocks = 16, 1
	}
	out := b.deviceMemory(16)
	c := &contender{stream: b.stream, put: func(int) error {
		return b.launch(b.add, b.stream, blocks, benchArgs{out: out, turns: uint32(turns), nanoseconds: 1 << 40})
	}}
	b.measure([]*contender{c}, 4)
	instructions := float64(blocks * threadsX * warps * turns * perTurn)
	return fmt.Sprintf("Integer instructions (a multiplication with addition, a logical one and an addition, in turns): %.2f 10¹² a second, %.2f–%.2f.\n",
		instructions/middle(c.figures)/1e6, instructions/slices.Max(c.figures)/1e6, instructions/slices.Min(c.figures)/1e6)
}

// deviceMemory is the address of size bytes of the device's memory.
func (b *gpuBench) deviceMemory(size int) uintptr {
	m, err := b.memory.Device.AllocDevice(size)
	b.check(err)
	b.t.Cleanup(func() { b.check(m.Close()) })
	return m.Pointer
}
