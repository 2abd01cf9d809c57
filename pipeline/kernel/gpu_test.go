// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline"
)

// onCPU reports whether a stand-in runs the kernels (cpu_test.go).
func onCPU() bool { return os.Getenv("STANDIN_FOLDER") != "" }

// example returns the path of a worked example; the binary of make gpu-test runs in the root of the tree.
func example(t testing.TB, name string) string {
	t.Helper()
	for _, folder := range []string{"../../docs/kernels", "docs/kernels"} {
		if path := filepath.Join(folder, name); exists(path) {
			return path
		}
	}
	t.Fatalf("%s is not there", name)
	return ""
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func openStage(t testing.TB, memory *cudahost.CUDA, c Config, transfer Transfer) (*Stage, *journal) {
	t.Helper()
	log := &journal{}
	s, err := New(memory, c, Options{Transfer: transfer, Quarantine: NewQuarantine(t.TempDir()), Order: NewOrder(), Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, log
}

func shared(t testing.TB, memory *cudahost.CUDA, f pipeline.Format) *pipeline.Frame {
	t.Helper()
	b, err := memory.AllocHost(f.Size(), cudahost.Mapped)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return &pipeline.Frame{Format: f, Bytes: b.Bytes(), Device: b.DevicePointer()}
}

func format(t testing.TB, p pipeline.PixelFormat, width, height int) pipeline.Format {
	t.Helper()
	f, err := pipeline.NewFormat(p, width, height, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// sizes returns the sizes of the frames, in pixels and lines.
func sizes() [][2]int {
	if onCPU() { // a block takes a millisecond
		return [][2]int{{2, 2}, {66, 9}, {250, 41}}
	}
	return [][2]int{{2, 2}, {66, 9}, {250, 41}, {328, 101}, {1920, 1080}}
}

func focusConfig(t testing.TB) Config {
	return Config{Name: "focus", File: example(t, "focus.cu"), Entry: "focus", Parameters: map[string]float64{"threshold": 60}}
}

// TestGPUFocus compares the painted edges with those of a Go implementation, byte for byte.
func TestGPUFocus(t *testing.T) {
	memory := cudatest.GPU(t)
	t.Log(memory.Device)
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, transfer := range []Transfer{InPlace, Staged} {
		s, _ := openStage(t, memory, focusConfig(t), transfer)
		for _, size := range sizes() {
			f := format(t, pipeline.UYVY, size[0], size[1])
			if size[0] == 66 { // with padding
				f.Stride += 6
			}
			if err := s.Plan(f, []pipeline.Format{f}); err != nil {
				t.Fatal(err)
			}
			var ins, outs []*pipeline.Frame
			for n := range 5 { // more than may be in flight
				in, out := shared(t, memory, f), shared(t, memory, f)
				for i := range in.Bytes {
					in.Bytes[i] = byte(rnd.Uint32N(uint32(20 << n)))
				}
				if err := s.Process(t.Context(), in, []*pipeline.Frame{out}); err != nil {
					t.Fatal(err)
				}
				ins, outs = append(ins, in), append(outs, out)
			}
			for n, out := range outs {
				if err := out.Ready.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				want, painted := focusReference(ins[n], 60)
				line := f.Pixel.LineBytes(f.Width)
				for y := range f.Height {
					if !bytes.Equal(out.Bytes[y*f.Stride:][:line], want[y*f.Stride:][:line]) {
						t.Fatalf("%s, transfer %d, frame %d: line %d differs", f, transfer, n, y)
					}
				}
				if size[0] > 66 && n == 4 && painted == 0 {
					t.Error("nothing was painted")
				}
			}
		}
	}
}

func focusReference(in *pipeline.Frame, threshold int) (want []byte, painted int) {
	f := in.Format
	luma := func(x, y int) int {
		return int(in.Bytes[min(max(y, 0), f.Height-1)*f.Stride+2*min(max(x, 0), f.Width-1)+1])
	}
	abs := func(v int) int { return max(v, -v) }
	sharp := func(x, y int) bool {
		return abs(luma(x+1, y)-luma(x-1, y))+abs(luma(x, y+1)-luma(x, y-1)) > threshold
	}
	want = bytes.Clone(in.Bytes)
	for y := range f.Height {
		for x := 0; x < f.Width; x += 2 {
			p := want[y*f.Stride+2*x:][:4]
			left, right := sharp(x, y), sharp(x+1, y)
			if left || right {
				p[0], p[2] = 102, 240
				painted++
			}
			if left {
				p[1] = 63
			}
			if right {
				p[3] = 63
			}
		}
	}
	return want, painted
}

// motionReference is motion.cu in Go.
type motionReference struct {
	means  []uint16
	frames int
}

func (m *motionReference) frame(in *pipeline.Frame, difference, share, speed float32) pipeline.Result {
	const tileW, tileH = 32, 8
	w, h := in.Format.Width, in.Format.Height
	columns, rows := (w+tileW-1)/tileW, (h+tileH-1)/tileH
	tiles := make([]int, columns*rows)
	moving := 0
	if m.means == nil {
		m.means = make([]uint16, w*h)
	}
	for y := range h {
		for x := range w {
			mean := &m.means[y*w+x]
			level := int(in.Bytes[y*in.Format.Stride+x]) * 256
			d := level - int(*mean)
			if m.frames == 0 {
				*mean = uint16(level)
				continue
			}
			if float32(max(d, -d)) > difference*256 {
				moving++
				tiles[y/tileH*columns+x/tileW]++
			}
			*mean = uint16(int(*mean) + int(float32(d)*speed))
		}
	}
	m.frames++
	r := pipeline.Result{Stage: "motion", Numbers: map[string]float64{"moving": float64(float32(moving) / (float32(w) * float32(h))), "state_needed": 0}}
	for row := range rows {
		from, pixels := -1, 0
		for i := range columns + 1 {
			height := min(tileH, h-row*tileH)
			if i < columns && tiles[row*columns+i] > 0 && float32(tiles[row*columns+i]) >= share*float32(min(tileW, w-i*tileW)*height) {
				if from < 0 {
					from, pixels = i, 0
				}
				pixels += tiles[row*columns+i]
			} else if from >= 0 {
				width := min(i*tileW, w) - from*tileW
				r.Regions = append(r.Regions, pipeline.Region{
					X: from * tileW, Y: row * tileH, Width: width, Height: height,
					Label: "motion", Score: float64(float32(pixels) / float32(width*height)),
				})
				from = -1
			}
		}
	}
	return r
}

func motionConfig(t testing.TB, state int) Config {
	return Config{
		Name: "motion", File: example(t, "motion.cu"), Entry: "motion", Results: true, State: state, Labels: []string{"motion"},
		Numbers: []string{"moving", "state_needed"}, Parameters: map[string]float64{"difference": 12, "share": 0.2, "speed": 0.05},
	}
}

// TestGPUMotion moves a square over noise, with several frames in flight.
func TestGPUMotion(t *testing.T) {
	memory := cudatest.GPU(t)
	for _, transfer := range []Transfer{InPlace, Staged} {
		s, _ := openStage(t, memory, motionConfig(t, 1<<23), transfer)
		for _, size := range sizes() {
			moveSquare(t, memory, s, format(t, pipeline.Grey, size[0], size[1]))
		}
	}
}

func moveSquare(t *testing.T, memory *cudahost.CUDA, s *Stage, f pipeline.Format) {
	t.Helper()
	small := format(t, pipeline.Grey, 4, 2)
	if err := s.Plan(f, []pipeline.Format{small}); err != nil {
		t.Fatal(err)
	}
	const n = 8
	rnd := rand.New(rand.NewPCG(3, 4))
	var reference motionReference
	var want []pipeline.Result
	var outs []*pipeline.Frame
	found := 0
	for i := range n {
		in, out := shared(t, memory, f), shared(t, memory, small)
		for k := range in.Bytes {
			in.Bytes[k] = byte(100 + rnd.Uint32N(8))
			if x, y := k%f.Stride, k/f.Stride; x >= 13*i && x < 13*i+40 && y >= 2 && y < 40 {
				in.Bytes[k] = 200
			}
		}
		r := reference.frame(in, 12, 0.2, 0.05)
		found += len(r.Regions)
		want, outs = append(want, r), append(outs, out)
		if err := s.Process(t.Context(), in, []*pipeline.Frame{out}); err != nil {
			t.Fatal(err)
		}
	}
	for i, out := range outs {
		if err := out.Ready.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(out.Results) != 1 || !reflect.DeepEqual(out.Results[0], want[i]) {
			t.Fatalf("%s, frame %d:\n%+v, want\n%+v", f, i, out.Results, want[i])
		}
	}
	if f.Width > 66 && found == 0 {
		t.Errorf("%s: the reference found nothing", f)
	}
}

// TestGPUStateTooSmall checks that the example reports how much state it needs, and touches nothing.
func TestGPUStateTooSmall(t *testing.T) {
	memory := cudatest.GPU(t)
	s, _ := openStage(t, memory, motionConfig(t, 64), Auto)
	r := result(t, memory, s)
	if len(r) != 1 || r[0].Numbers["state_needed"] != 16+4*2*2+2*64*16 || r[0].Regions != nil {
		t.Errorf("%+v", r)
	}
}

// result passes a frame of 64x16 through a kernel of results.
func result(t *testing.T, memory *cudahost.CUDA, s *Stage) []pipeline.Result {
	t.Helper()
	f, small := format(t, pipeline.Grey, 64, 16), format(t, pipeline.Grey, 4, 2)
	if err := s.Plan(f, []pipeline.Format{small}); err != nil {
		t.Fatal(err)
	}
	in, out := shared(t, memory, f), shared(t, memory, small)
	if err := s.Process(t.Context(), in, []*pipeline.Frame{out}); err != nil {
		t.Fatal(err)
	}
	if err := out.Ready.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.Results
}

// numbered returns a kernel that reports a number and counts frames in its state.
func numbered(n string) string {
	return `extern "C" __global__ void k(const Input in, Results *results, const parameters p, void *state)
{
	if (pixel_x(in) || pixel_y())
		return;
	results->numbers.a = ` + n + `;
	results->numbers.frames = ++*(unsigned *)state;
	results->bins[1] = in.sequence + p.more;
}
`
}

// TestGPUReload changes a running kernel, first to one that does not compile, and then to a good one, whose state
// starts with zeros.
func TestGPUReload(t *testing.T) {
	memory := cudatest.GPU(t)
	file := filepath.Join(t.TempDir(), "k.cu")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(numbered("1"))
	c := Config{Name: "k", File: file, Entry: "k", Results: true, Numbers: []string{"a", "frames"}, Bins: 2, State: 4, Parameters: map[string]float64{"more": 3}}
	s, log := openStage(t, memory, c, Auto)
	is := func(a, frames float64) bool {
		r := result(t, memory, s)
		return r[0].Numbers["a"] == a && r[0].Numbers["frames"] == frames && r[0].Bins[1] == 3
	}
	if !is(1, 1) || !is(1, 2) {
		t.Error("the first kernel")
	}
	awaitLog := func(text string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !strings.Contains(log.String(), text); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the log does not say %q:\n%s", text, log)
			}
		}
	}
	write(strings.Replace(numbered("2"), "return;", "retrun;", 1))
	awaitLog("changed kernel rejected")
	if !onCPU() && !strings.Contains(log.String(), "k.cu(4): error") {
		t.Errorf("the line of the mistake is missing:\n%s", log)
	}
	if !is(1, 3) {
		t.Error("a kernel that does not compile has changed something")
	}
	write(numbered("4"))
	awaitLog("kernel was changed and works")
	if !is(4, 1) {
		t.Error("the changed kernel")
	}
}

// TestGPURefused checks that what cannot be opened is refused with the reason, and does not affect the device.
func TestGPURefused(t *testing.T) {
	memory := cudatest.GPU(t)
	file := filepath.Join(t.TempDir(), "k.cu")
	_, everything, err := memory.Device.FreeMemory()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text  string
		entry string
		state int
		is    error
		says  string // from NVRTC
	}{
		{numbered("1"), "other", 4, cudahost.ErrCompile, "the entry point of k.cu"},
		{strings.Replace(numbered("1"), `extern "C" `, "", 1), "k", 4, ErrConfig, "has no entry point k"},
		{strings.Replace(numbered("1"), "const parameters p, void *", "void *", 1), "k", 4, cudahost.ErrCompile, "k.cu"},
		{"#error told so\n", "k", 4, cudahost.ErrCompile, "k.cu(1)"},
		{numbered("1"), "k", everything, nil, "OUT_OF_MEMORY"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := Config{
			Name: "k", File: file, Entry: c.entry, Results: true, Numbers: []string{"a", "frames"}, Bins: 2, State: c.state,
			Parameters: map[string]float64{"more": 3},
		}
		s, err := New(memory, cfg, Options{Quarantine: NewQuarantine(""), Order: NewOrder()})
		if err == nil {
			t.Errorf("%q was opened", c.says)
			_ = s.Close()
		} else if c.is != nil && !errors.Is(err, c.is) || !onCPU() && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	s, _ := openStage(t, memory, motionConfig(t, 1<<20), Auto)
	if r := result(t, memory, s); len(r) != 1 {
		t.Errorf("afterwards: %+v", r)
	}
}
