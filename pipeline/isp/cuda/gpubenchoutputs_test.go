// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// An outputCase is a picture, or two, of which TestGPUBench measures the kernels.
type outputCase struct {
	in    pipeline.PixelFormat
	want  []pipeline.PixelFormat // the second has half the size
	half  bool                   // so has the first
	ready bool                   // packet-ready
}

func outputCases() []outputCase {
	list := []outputCase{}
	for _, in := range []pipeline.PixelFormat{pipeline.RGGB10, pipeline.RGGB12P} {
		list = append(list, outputCase{in: in, want: []pipeline.PixelFormat{pipeline.UYVY}, ready: true},
			outputCase{in: in, want: []pipeline.PixelFormat{pipeline.NV12}}, outputCase{in: in, want: []pipeline.PixelFormat{pipeline.I420}})
	}
	list = append(list, outputCase{in: pipeline.RGGB10, want: []pipeline.PixelFormat{pipeline.I420}, half: true},
		outputCase{in: pipeline.RGGB10, want: []pipeline.PixelFormat{pipeline.UYVY, pipeline.I420}, ready: true})
	if onCPU() {
		return list[len(list)-1:]
	}
	return list
}

func (c *outputCase) String() string {
	text := fmt.Sprintf("%v to %v", c.in, c.want[0])
	if c.ready {
		text += " in packets"
	}
	if c.half {
		text += ", half size"
	}
	if len(c.want) > 1 {
		text += fmt.Sprintf(" and %v, half size", c.want[1])
	}
	return text
}

func (c *outputCase) formats(b *gpuBench, w, h int) (in pipeline.Format, want []pipeline.Format) {
	for i, p := range c.want {
		if c.half {
			i = 1
		}
		f := format(b.t, p, w>>i, h>>i)
		if c.ready && i == 0 {
			f.HeaderGap, f.PacketPitch = 20, 20+f.Stride/max(1, w/640) // 1280 bytes
		}
		want = append(want, f)
	}
	return format(b.t, c.in, w, h), want
}

// outputs compares the kernels of the most used pictures, by Malvar, with the faster of two copies of as many bytes.
func (b *gpuBench) outputs(sizes [][2]int) string {
	head, line := "|kernels|", "|---|"
	rows := make([]string, len(outputCases()))
	for _, size := range sizes {
		head, line = head+fmt.Sprintf("%dx%d|", size[0], size[1]), line+"---|"
		for i, cell := range b.outputsOf(size[0], size[1]) {
			rows[i] += cell + "|"
		}
	}
	for i, c := range outputCases() {
		rows[i] = "|" + c.String() + "|" + rows[i]
	}
	return "### Kernels by Malvar, in the device's memory: µs a frame, and the speed relative to the faster of two copies of as many bytes, by the driver and by a kernel\n\n" +
		strings.Join(append([]string{head, line}, rows...), "\n") + "\n"
}

// outputsOf returns the cells of a frame's size.
func (b *gpuBench) outputsOf(w, h int) (cells []string) {
	rings := 6
	if small := 256 << 20 / (3 * w * h); !onCPU() {
		rings = max(rings, small) // so that no frame is in a cache
	}
	var list, all []*contender
	copies, moves := map[int][2]*contender{}, map[*contender]int{}
	for _, c := range outputCases() {
		k, bytes := b.output(&c, w, h, rings)
		list, all = append(list, k), append(all, k)
		bytes = bytes / 32 * 32
		if moves[k] = bytes; copies[bytes][0] == nil {
			copies[bytes] = b.copies(bytes, rings)
			all = append(all, copies[bytes][0], copies[bytes][1])
		}
	}
	b.measure(all, max(24, rings))
	for _, k := range list {
		c := copies[moves[k]]
		cells = append(cells, fmt.Sprintf("%.1f (%.1f–%.1f), %.0f %%", middle(k.figures), slices.Min(k.figures), slices.Max(k.figures), 100*min(k.times(c[0]), k.times(c[1]))))
	}
	return cells
}

// output returns the kernels of a case, and how many bytes they read and write.
func (b *gpuBench) output(c *outputCase, w, h, rings int) (*contender, int) {
	s := newStage(b.t, b.memory, plainIsp(isp.Malvar), Options{Transfer: InPlace, Cache: b.cache})
	s.linked = false
	in, want := c.formats(b, w, h)
	b.check(s.Plan(in, want))
	from, to := make([]*pipeline.Frame, rings), make([][]*pipeline.Frame, rings)
	samples := b.samples(in)
	for i := range rings {
		from[i] = &pipeline.Frame{Format: in, Device: b.deviceMemory(in.Size())}
		b.upload(from[i].Device, samples)
		for _, f := range want {
			to[i] = append(to[i], &pipeline.Frame{Format: f, Device: b.deviceMemory(f.Size())})
		}
	}
	bytes := in.Size()
	for _, f := range want {
		f.HeaderGap, f.PacketPitch = 0, 0 // what is left free for headers does not count
		bytes += f.Size()
	}
	return &contender{name: c.String(), stream: s.work, put: func(i int) error { return enqueueFrame(s, from[i%rings], to[i%rings]) }}, bytes
}

// copies returns two copies that read and write so many bytes in total.
func (b *gpuBench) copies(bytes, rings int) (list [2]*contender) {
	from, to := make([]uintptr, rings), make([]uintptr, rings)
	for i := range rings {
		from[i], to[i] = b.deviceMemory(bytes/2), b.deviceMemory(bytes/2)
	}
	list[0] = &contender{name: "copy", stream: b.stream, put: func(i int) error {
		b.driver.call("cuMemcpyDtoDAsync_v2", to[i%rings], from[i%rings], uintptr(bytes/2), b.stream.Handle())
		return nil
	}}
	list[1] = &contender{name: "copy by a kernel", stream: b.stream, put: func(i int) error {
		return b.launch(b.copy, b.stream, over(bytes/32, 4*threadsX*threadsY), benchArgs{in: from[i%rings], out: to[i%rings], groups: uint64(bytes / 32)})
	}}
	return list
}
