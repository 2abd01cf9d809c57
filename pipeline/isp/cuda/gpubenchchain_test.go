// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strings"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// A benchFrame is a frame in device memory, with room for the output of any contender.
type benchFrame struct {
	in16, in8, out uintptr
	wide           uintptr // R, G, B of 16 bits
}

// samples returns a frame of the repeated chart, whose samples have 10 bits.
func (b *gpuBench) samples(f pipeline.Format) []byte {
	out := make([]byte, f.Size())
	kind, _ := f.Pixel.Samples()
	for y := range f.Height {
		line, chart := out[y*f.Stride:][:f.Stride], b.chart.Bytes[2*1920*(y%1080):]
		for x := range f.Width {
			v := binary.LittleEndian.Uint16(chart[2*(x%1920):]) << 6 >> (16 - kind.Bits)
			switch {
			case kind.Packed: // 12 bits
				line[x/2*3+x%2] = byte(v >> 4)
				line[x/2*3+2] |= byte(v&15) << (x % 2 * 4)
			case kind.Bits == 8:
				line[x] = byte(v)
			default:
				binary.LittleEndian.PutUint16(line[2*x:], v)
			}
		}
	}
	return out
}

func (b *gpuBench) frame(w, h int) benchFrame {
	f := benchFrame{in16: b.deviceMemory(2 * w * h), in8: b.deviceMemory(w * h), out: b.deviceMemory(3 * w * h), wide: b.deviceMemory(6 * w * h)}
	b.upload(f.in16, b.samples(format(b.t, pipeline.RGGB16, w, h)))
	b.upload(f.in8, b.samples(format(b.t, pipeline.RGGB8, w, h)))
	return f
}

// upload copies from ordinary memory to the device.
func (b *gpuBench) upload(to uintptr, from []byte) {
	b.driver.call("cuMemcpyHtoDAsync_v2", to, uintptr(unsafe.Pointer(&from[0])), uintptr(len(from)), b.stream.Handle())
	b.check(b.stream.Synchronize())
	runtime.KeepAlive(from)
}

// kernels returns the kernels of a stage, from 16 bits to R'G'B', and the stream on which they are enqueued. Frames are
// accessed over a link, or are in device memory.
func (b *gpuBench) kernels(c isp.Config, w, h int, linked bool) (*cudahost.Stream, func(in, out uintptr) error) {
	s := newStage(b.t, b.memory, c, Options{Transfer: InPlace, Cache: b.cache})
	s.linked = linked
	in, out := format(b.t, pipeline.RGGB16, w, h), format(b.t, pipeline.RGB24, w, h)
	b.check(s.Plan(in, []pipeline.Format{out}))
	from, to := &pipeline.Frame{Format: in}, &pipeline.Frame{Format: out}
	list := []*pipeline.Frame{to}
	return s.work, func(in, out uintptr) error {
		from.Device, to.Device = in, out
		return enqueueFrame(s, from, list)
	}
}

// plainIsp applies black level, white balance and the BT.709 curve.
func plainIsp(d isp.Demosaic) isp.Config {
	return isp.Config{Demosaic: d, Gains: isp.Gains{R: 1.5, B: 1.1}, BlackLevel: 64}
}

// chain compares the kernels for a frame, from 16 bits to 8-bit R'G'B', on frames in device memory.
func (b *gpuBench) chain(w, h int) string {
	rings := 6
	if small := 256 << 20 / (5 * w * h); !onCPU() {
		rings = max(rings, small) // so that no frame is in a cache
	}
	frames := make([]benchFrame, rings)
	for i := range frames {
		frames[i] = b.frame(w, h)
	}
	ring := func(i int) *benchFrame { return &frames[i%rings] }
	var list []*contender
	add := func(name string, put func(f *benchFrame) error) *contender {
		c := &contender{name: name, stream: b.stream, put: func(i int) error { return put(ring(i)) }}
		list = append(list, c)
		return c
	}
	for i, name := range []string{"tegracast, bilinear", "tegracast, Malvar"} {
		stream, put := b.kernels(plainIsp(isp.Demosaic(i)), w, h, false)
		add(name, func(f *benchFrame) error { return put(f.in16, f.out) }).stream = stream
	}
	copied := add("copy of as many bytes", func(f *benchFrame) error {
		b.driver.call("cuMemcpyDtoDAsync_v2", f.wide, f.wide+uintptr(3*w*h), uintptr(5*w*h/2), b.stream.Handle())
		return nil
	})
	wide, whole, note := b.peers(add, &frames[0], w, h)
	b.measure(list, max(24, rings))
	return fmt.Sprintf("### Kernels of a %dx%d frame, 16 bits to R'G'B' of 8, in the device's memory\n\n", w, h) + chainTable(list, copied, wide, whole) + "\n" + note
}

// peers adds what NPP offers and can do here: the contenders for R, G, B of 16 bits and of 8, and a note.
func (b *gpuBench) peers(add func(string, func(*benchFrame) error) *contender, f *benchFrame, w, h int) (wide, whole *contender, note string) {
	n := openNPP(b.t, b.driver, b.stream)
	if n == nil {
		return nil, nil, "NPP is not here.\n"
	}
	note = fmt.Sprintf("NPP is %s.", n.from)
	try := func(name string, is bool, put func(f *benchFrame) error) *contender {
		err := fmt.Errorf("there is no such function")
		if is {
			err = put(f)
		}
		if err != nil {
			note += fmt.Sprintf(" %s: %v.", name, err)
			return nil
		}
		return add(name, put)
	}
	to16 := func(f *benchFrame) error { return n.color(2, f.in16, f.wide, w, h) }
	wide = try("NPP, CFAToRGB to 16 bits", n.color16 != 0, to16)
	whole = try("NPP, CFAToRGB and Scale to 8 bits", wide != nil && n.scale != 0, func(f *benchFrame) error {
		if err := to16(f); err != nil {
			return err
		}
		return n.toBytes(f.wide, f.out, w, h)
	})
	try("NPP, CFAToRGB of 8 bits to 8", n.color8 != 0, func(f *benchFrame) error { return n.color(1, f.in8, f.out, w, h) })
	if whole != nil {
		note += b.difference(whole.put, f, w, h)
	}
	return wide, whole, note + "\n"
}

func chainTable(list []*contender, copied, wide, whole *contender) string {
	var t strings.Builder
	t.WriteString("|kernels|µs a frame|× NPP to 16 bits|× NPP to 8 bits|of the copy's speed|\n|---|---|---|---|---|\n")
	for _, c := range list {
		t.WriteString(c.cells())
		for _, other := range []*contender{wide, whole} {
			if other == nil {
				t.WriteString("–|")
			} else {
				fmt.Fprintf(&t, "%.2f|", c.times(other))
			}
		}
		if strings.HasPrefix(c.name, "NPP") {
			t.WriteString("–|\n") // it moves a different amount of data
		} else {
			fmt.Fprintf(&t, "%.0f %%|\n", 100*c.times(copied))
		}
	}
	return t.String()
}

// difference describes how far NPP's picture differs from ours without black level, white balance and curve, when both
// should be the same.
func (b *gpuBench) difference(peer func(i int) error, f *benchFrame, w, h int) string {
	stream, put := b.kernels(isp.Config{Gamma: 1}, w, h, false)
	read := func() []byte {
		host, err := b.memory.AllocHost(3*w*h, cudahost.Default)
		b.check(err)
		b.t.Cleanup(func() { b.check(host.Close()) })
		b.check(b.stream.Read(host.Addr(), f.out, 3*w*h))
		b.check(b.stream.Synchronize())
		return host.Bytes()
	}
	b.check(put(f.in16, f.out))
	b.check(stream.Synchronize())
	ours := read()
	b.check(peer(0))
	theirs := read()
	sum := 0.0
	for y := 2; y < h-2; y++ {
		for i := y*3*w + 6; i < (y+1)*3*w-6; i++ {
			sum += math.Abs(float64(ours[i]) - float64(theirs[i]))
		}
	}
	mean := sum / float64(3*(w-4)*(h-4))
	if mean > 2 && !onCPU() {
		b.t.Errorf("NPP's picture is another one: a colour differs by %.2f of 255 in the mean", mean)
	}
	return fmt.Sprintf(" Without black level, white balance and curve its picture of 8 bits differs from ours by %.3f of 255 in the mean.", mean)
}
