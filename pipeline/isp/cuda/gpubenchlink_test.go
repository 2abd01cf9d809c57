// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"fmt"
	"strings"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// hostRings is the number of frames in host memory used in turn.
const hostRings = 6

// hostFrames returns frames of shared memory that contain the chart.
func (b *gpuBench) hostFrames(p pipeline.PixelFormat, w, h int, flags cudahost.Flags) []*pipeline.Frame {
	f := format(b.t, p, w, h)
	var text []byte
	if p == pipeline.RGGB16 {
		text = b.samples(f)
	}
	var list []*pipeline.Frame
	for range hostRings {
		m, err := b.memory.AllocHost(f.Size(), flags|cudahost.Mapped)
		b.check(err)
		b.t.Cleanup(func() { b.check(m.Close()) })
		copy(m.Bytes(), text)
		list = append(list, &pipeline.Frame{Format: f, Bytes: m.Bytes(), Device: m.DevicePointer()})
	}
	return list
}

// link compares frames that kernels read and write in host memory with the work of copy engines, and of a kernel that
// only copies, over the link.
func (b *gpuBench) link(w, h int) string {
	ins, combined := b.hostFrames(pipeline.RGGB16, w, h, cudahost.Default), b.hostFrames(pipeline.RGGB16, w, h, cudahost.WriteCombined)
	outs, device := b.hostFrames(pipeline.RGB24, w, h, cudahost.Default), b.deviceMemory(3*w*h)
	arriving := b.deviceMemory(2 * w * h)
	copyIn := func(i int, s *cudahost.Stream) {
		b.driver.call("cuMemcpyHtoDAsync_v2", arriving, address(ins[i%hostRings]), uintptr(2*w*h), s.Handle())
	}
	copyOut := func(i int, s *cudahost.Stream) {
		b.driver.call("cuMemcpyDtoHAsync_v2", address(outs[i%hostRings]), device, uintptr(3*w*h), s.Handle())
	}
	in := &contender{name: "copies in", stream: b.stream, put: func(i int) error { copyIn(i, b.stream); return nil }}
	out := &contender{name: "copies out", stream: b.stream, put: func(i int) error { copyOut(i, b.stream); return nil }}
	both := &contender{name: "copies in and out at the same time", stream: b.stream, beside: b.turn, put: func(i int) error {
		copyIn(i, b.stream)
		copyOut(i, b.turn)
		return nil
	}}
	groups := uint64(2 * w * h / 1024)
	pass := &contender{name: "a kernel that only copies, in place", stream: b.stream, put: func(i int) error {
		return b.launch(b.pass, b.stream, linkWarps(pipeline.Samples{Bits: 16})/threadsY, benchArgs{
			in: ins[i%hostRings].Device, out: outs[i%hostRings].Device, groups: groups,
		})
	}}
	list := []*contender{in, out, both, pass}
	inPlace := func(name string, d isp.Demosaic, from []*pipeline.Frame) {
		stream, put := b.kernels(plainIsp(d), w, h, !b.memory.Device.Integrated)
		list = append(list, &contender{name: name, stream: stream, put: func(i int) error {
			return put(from[i%hostRings].Device, outs[i%hostRings].Device)
		}})
	}
	inPlace("tegracast in place, bilinear", isp.Bilinear, ins)
	inPlace("tegracast in place, Malvar", isp.Malvar, ins)
	inPlace("tegracast in place, Malvar, from write-combined memory", isp.Malvar, combined)
	b.measure(list, 12)
	var t strings.Builder
	fmt.Fprintf(&t, "### The link to host memory, %dx%d: 2 bytes a pixel in, 3 out\n\n"+
		"|transfer|µs a frame|GB/s in|GB/s out|of the copy engines' speed|of the copying kernel's|\n|---|---|---|---|---|---|\n", w, h)
	for _, c := range list {
		rate := func(bytes int) string { return fmt.Sprintf("%.1f", float64(bytes*w*h)/middle(c.figures)/1e3) }
		switch c {
		case in:
			fmt.Fprintf(&t, "%s%s|–|–|–|\n", c.cells(), rate(2))
		case out:
			fmt.Fprintf(&t, "%s–|%s|–|–|\n", c.cells(), rate(3))
		default:
			fmt.Fprintf(&t, "%s%s|%s|%.0f %%|%.0f %%|\n", c.cells(), rate(2), rate(3), 100*c.times(both), 100*c.times(pass))
		}
	}
	return t.String()
}

// overlap compares several frames in flight with one, through Process, staged, from host memory to host memory, in
// elapsed time.
func (b *gpuBench) overlap(w, h int) string {
	s := newStage(b.t, b.memory, plainIsp(isp.Malvar), Options{Transfer: Staged, Cache: b.cache})
	ins, outs := b.hostFrames(pipeline.RGGB16, w, h, cudahost.Default), b.hostFrames(pipeline.RGB24, w, h, cudahost.Default)
	b.check(s.Plan(ins[0].Format, []pipeline.Format{outs[0].Format}))
	frames := 40
	if onCPU() {
		frames = 8
	}
	var list []*contender
	for n := range inFlight {
		list = append(list, &contender{name: fmt.Sprint(n + 1)})
	}
	for round := range *benchRounds + 1 {
		for i := range list {
			n := (i + round) % len(list)
			if figure := b.inWork(s, ins, outs, n+1, frames); round > 0 {
				list[n].figures = append(list[n].figures, figure)
			}
		}
	}
	var t strings.Builder
	fmt.Fprintf(&t, "### Staged, %dx%d: frames in work at a time, copied in, processed (Malvar) and copied out\n\n"+
		"|frames in work|µs a frame|× one|\n|---|---|---|\n", w, h)
	for _, c := range list {
		fmt.Fprintf(&t, "%s%.2f|\n", c.cells(), c.times(list[0]))
	}
	return t.String()
}

// inWork returns the time per frame in microseconds with n frames in flight.
func (b *gpuBench) inWork(s *Stage, ins, outs []*pipeline.Frame, n, frames int) float64 {
	begin := time.Now()
	for i := range frames {
		if i >= n {
			await(b.t, outs[(i-n)%hostRings:][:1])
		}
		b.check(s.Process(b.t.Context(), ins[i%hostRings], outs[i%hostRings:][:1]))
	}
	await(b.t, outs)
	return time.Since(begin).Seconds() * 1e6 / float64(frames)
}
