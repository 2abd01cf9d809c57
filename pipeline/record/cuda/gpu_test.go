// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/cuda"
)

// TestPackingOnCPU runs the tests with a stand-in for CUDA that runs the kernel on the CPU.
func TestPackingOnCPU(t *testing.T) {
	const testdata = "../../isp/cuda/testdata"
	env := cudatest.StandIn(t, t.TempDir(), testdata+"/device.cpp", testdata)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestGPU", "-test.v")
	cmd.Env = slices.Concat(os.Environ(), env, []string{"TEGRACAST_GPU=1"})
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "SKIP") || strings.Count(string(out), "--- PASS") < 2 {
		t.Fatalf("%v\n%s", err, out)
	}
}

func newPacker(t testing.TB, memory *cudahost.CUDA, f pipeline.Format) *cuda.Packer {
	t.Helper()
	s, _ := f.Pixel.Samples()
	p, err := cuda.NewPacker(memory, s, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, p) })
	return p
}

func closed(t testing.TB, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func buffer(t testing.TB, memory *cudahost.CUDA, size int) *cudahost.Buffer {
	t.Helper()
	b, err := memory.AllocHost(size, cudahost.Mapped)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, b) })
	return b
}

func format(t testing.TB, p pipeline.PixelFormat, width, height int) pipeline.Format {
	t.Helper()
	f, err := pipeline.NewFormat(p, width, height, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// fill fills b with samples of random bits.
func fill(b []byte, bits int, rnd *rand.Rand) {
	for i := 0; i < len(b); i += 2 {
		binary.LittleEndian.PutUint16(b[i:], uint16(rnd.Uint32())&(1<<bits-1))
	}
}

// TestGPUPacking checks that frames of all sizes are packed as on the CPU, that nothing else is written, and that a
// sample with too many bits is found wherever it is.
func TestGPUPacking(t *testing.T) {
	memory, rnd := cudatest.GPU(t), rand.New(rand.NewPCG(3, 4))
	for _, pixel := range []pipeline.PixelFormat{pipeline.RGGB10, pipeline.Mono12} {
		about, _ := pixel.Samples()
		p := newPacker(t, memory, format(t, pixel, 64, 2))
		for _, size := range [][2]int{{4, 2}, {12, 2}, {16, 2}, {36, 2}, {644, 46}, {1928, 64}, {1920, 1080}} {
			f := format(t, pixel, size[0], size[1])
			packed, err := f.Packed()
			if err != nil {
				t.Fatal(err)
			}
			in, out := buffer(t, memory, f.Size()), buffer(t, memory, packed.Size()+8)
			fill(in.Bytes(), about.Bits, rnd)
			for i := range out.Bytes() {
				out.Bytes()[i] = 0xa5
			}
			frame, want := &pipeline.Frame{Format: f, Bytes: in.Bytes(), Device: in.DevicePointer()}, bytes.Repeat([]byte{0xa5}, packed.Size()+8)
			if err := errors.Join(about.Pack(want[:packed.Size()], in.Bytes()), p.Pack(out, frame)); err != nil || !bytes.Equal(out.Bytes(), want) {
				t.Fatalf("%s: not as on the CPU: %v", f, err)
			}
			for _, at := range []int{1, f.Size() - 1, 2*rnd.IntN(f.Size()/2) + 1} {
				in.Bytes()[at] |= 1 << (about.Bits - 8)
				if err := p.Pack(out, frame); !errors.Is(err, pipeline.ErrDepth) {
					t.Errorf("%s: byte %d: %v", f, at, err)
				}
				in.Bytes()[at] &^= 1 << (about.Bits - 8)
			}
		}
	}
}

// camera emits frames of random samples with their CRC.
type camera struct {
	format pipeline.Format
	pool   *pipeline.Pool
	rnd    *rand.Rand
}

func (c *camera) Format() pipeline.Format       { return c.format }
func (c *camera) Status() pipeline.SourceStatus { return pipeline.SourceStatus{} }

func (c *camera) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	about, _ := c.format.Pixel.Samples()
	for n := range uint64(10) {
		f, err := c.pool.Wait(ctx)
		if err != nil {
			return nil
		}
		fill(f.Bytes, about.Bits, c.rnd)
		f.Sequence, f.Times.ExposureStart, f.CRC = n, time.Unix(1, int64(n)), crc32.Checksum(f.Bytes, crc32.MakeTable(crc32.Castagnoli))
		emit(f)
	}
	return nil
}

// TestGPURecording records frames in CUDA memory. According to their CRC, the frames in the file must be those of the
// camera.
func TestGPURecording(t *testing.T) {
	log, memory, dir := slog.New(slog.DiscardHandler), cudatest.GPU(t), t.TempDir()
	f := format(t, pipeline.Mono12, 642, 31)
	driver, err := cufile.Open(cufile.Config{Settings: cufile.DefaultSettings(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, driver)
	sink, err := record.New(record.Config{Directory: dir, Name: "rec", Source: "camera", Driver: driver, Pack: true, Memory: memory, Logger: log}, f)
	if err != nil {
		t.Fatal(err)
	}
	var slots []pipeline.Slot
	for range 3 {
		b := buffer(t, memory, f.Size())
		slots = append(slots, pipeline.Slot{Bytes: b.Bytes(), Device: b.DevicePointer()})
	}
	src := &camera{f, pipeline.NewPool("frames", f, slots, nil), rand.New(rand.NewPCG(5, 6))}
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: log})
	if err := g.AddSource("camera", src); err != nil {
		t.Fatal(err)
	}
	o, err := g.Attach(pipeline.OutputConfig{Name: "rec", From: "camera", Sink: sink, Depth: 4, Policy: pipeline.Block})
	if err == nil {
		err = errors.Join(g.Run(t.Context()), src.pool.Close(), o.Err())
	}
	files, listed := record.Files(dir, "rec")
	if err != nil || listed != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	r, err := record.Inspect(t.Context(), files[0], true, func(float64) {})
	if err != nil || !r.Good() || r.Frames != 10 || r.Traced != 10 || r.Image.Encoding != pipeline.Mono12P.String() {
		t.Errorf("%+v, %v", r, err)
	}
}
