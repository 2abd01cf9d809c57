// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// hostMemory returns an allocator of ordinary memory.
func hostMemory(t testing.TB) cudahost.Allocator {
	t.Helper()
	m, err := cudahost.Open(cudahost.Config{Backend: "host"})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// eventually waits until a condition holds, or fails after a minute.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// A v4l2Run is a running camera whose frames are collected.
type v4l2Run struct {
	camera *V4L2Camera
	mu     sync.Mutex
	frames []*pipeline.Frame
	stop   context.CancelFunc
	ended  chan error
}

func openDouble(t testing.TB, d *videoDouble, cfg V4L2Config) *V4L2Camera {
	t.Helper()
	cfg.Device = "/dev/video0"
	if cfg.Memory = hostMemory(t); cfg.FrameTimeout == 0 {
		cfg.FrameTimeout = time.Hour // nothing here depends on the clock
	}
	c, err := newV4L2Camera(cfg, d.machine())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// runDouble runs a camera, and ends it with the test. Whoever takes frames must release them.
func runDouble(t testing.TB, d *videoDouble, cfg V4L2Config) *v4l2Run {
	t.Helper()
	r := &v4l2Run{camera: openDouble(t, d, cfg), ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() {
		r.ended <- r.camera.Run(ctx, func(f *pipeline.Frame) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.frames = append(r.frames, f)
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-r.ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		for _, f := range r.frames {
			f.Release()
		}
		if err := r.camera.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.opened != 0 {
			t.Errorf("%d device files are open", d.opened)
		}
	})
	return r
}

// frame makes a frame, as soon as the camera has queued a buffer.
func (r *v4l2Run) frame(t testing.TB, d *videoDouble, change func(*videodev.Buffer)) {
	t.Helper()
	eventually(t, "a queued buffer", func() bool { return d.frame(change) })
}

// next returns the next frame.
func (r *v4l2Run) next(t testing.TB) (f *pipeline.Frame) {
	t.Helper()
	eventually(t, "a frame", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.frames) == 0 {
			return false
		}
		f, r.frames = r.frames[0], r.frames[1:]
		return true
	})
	return f
}

// TestV4L2Frames checks every byte of frames of each format, into slots and by a copy, single- and multi-planar, with and
// without padding.
func TestV4L2Frames(t *testing.T) {
	codes := []string{"RGGB", "GREY", "RG10", "pRAA", "BG12", "pBCC", "GB14", "pREE", "Y16 ", "UYVY", "YUYV", "NV12", "YU12", "RGB3"}
	for _, code := range codes {
		for way := range 16 {
			multi, user, padded, tight := way&1 != 0, way&2 != 0, way&4 != 0, way&8 != 0
			if tight && !padded {
				continue
			}
			t.Run(fmt.Sprintf("%s multi %t user %t padded %t tight %t", strings.TrimSpace(code), multi, user, padded, tight), func(t *testing.T) {
				d := newDouble(code)
				if d.multi, d.user = multi, user; padded {
					d.padding = 64
				}
				checkDouble(t, d, V4L2Config{Slots: 4, Tight: tight})
			})
		}
	}
	for beyond, want := range map[int]string{0: "USERPTR", 4096: "MMAP, one copy"} { // the device would write into the second plane
		t.Run(fmt.Sprintf("two planes, %d bytes beyond", beyond), func(t *testing.T) {
			d := newDouble("NM12")
			d.multi, d.planes = true, func() []int { return []int{64*48 + beyond, 64 * 24} }
			if how := checkDouble(t, d, V4L2Config{Slots: 3}); !strings.HasPrefix(how, want) {
				t.Errorf("frames come by %s", how)
			}
		})
	}
	t.Run("offset of the pixels", func(t *testing.T) {
		for _, user := range []bool{false, true} {
			d := newDouble("RG10")
			d.multi, d.user, d.offset = true, user, 128
			checkDouble(t, d, V4L2Config{Slots: 3})
		}
	})
}

// checkDouble takes twenty frames, compares their pixels, and returns how they came.
func checkDouble(t *testing.T, d *videoDouble, cfg V4L2Config) string {
	t.Helper()
	r := runDouble(t, d, cfg)
	for i := range 20 {
		r.frame(t, d, nil)
		f := r.next(t)
		if f.Sequence != uint64(i) || f.Format != r.camera.Format() {
			t.Errorf("frame %d: sequence %d, %s", i, f.Sequence, f.Format)
		}
		if want := d.expected(i, f.Format); !bytes.Equal(visible(f.Format, f.Bytes), want) {
			t.Fatalf("frame %d of %s by %s: other pixels", i, f.Format, r.camera.How())
		}
		f.Release()
	}
	if st := r.camera.Status(); st.Counters["lost"]+st.Counters["damaged"]+st.Counters["no_slot"] != 0 {
		t.Errorf("%v", st.Counters)
	}
	how := r.camera.How()
	if d.user && len(d.sizes()) == 1 && d.user && strings.HasPrefix(how, "MMAP") && videodev.Letters(d.pixels)[1:] != "REE" {
		t.Errorf("frames of %s come by %s", videodev.Letters(d.pixels), how)
	}
	return how
}

// visible returns the bytes of a frame that are pixels.
func visible(f pipeline.Format, b []byte) (out []byte) {
	rows := func(at, stride, line, lines int) {
		for y := range lines {
			out = append(out, b[at+y*stride:][:line]...)
		}
	}
	line := f.Pixel.LineBytes(f.Width)
	rows(0, f.Stride, line, f.Height)
	switch at := f.Stride * f.Height; f.Pixel {
	case pipeline.NV12:
		rows(at, f.Stride, line, f.Height/2)
	case pipeline.I420:
		rows(at, f.Stride/2, line/2, f.Height/2)
		rows(at+f.Stride/2*f.Height/2, f.Stride/2, line/2, f.Height/2)
	}
	return out
}

// expected returns the visible pixels of a frame, made from what the double writes by another way than the camera's.
func (d *videoDouble) expected(number int, f pipeline.Format) []byte {
	var memory [][]byte
	for k, n := range d.sizes() {
		memory = append(memory, make([]byte, n-int(d.offset)))
		pattern(memory[k], number+k)
	}
	if len(memory) == 2 {
		return visible(f, slices.Concat(memory[0][:64*48], memory[1]))
	}
	raw := f
	raw.Stride = int(d.line())
	switch videodev.Letters(d.pixels) {
	case "YUYV":
		b := visible(raw, memory[0])
		for i := 0; i < len(b); i += 2 {
			b[i], b[i+1] = b[i+1], b[i]
		}
		return b
	case "pREE":
		var out []byte
		for y := range f.Height {
			line := memory[0][y*raw.Stride:]
			for x := range f.Width {
				group, bit := line[x/4*7:], x%4*6
				low := (int(group[4]) | int(group[5])<<8 | int(group[6])<<16) >> bit & 63
				v := int(group[x%4])<<6 | low
				out = append(out, byte(v), byte(v>>8))
			}
		}
		return out
	}
	return visible(raw, memory[0])
}

// TestV4L2FallsBackToACopy checks drivers that refuse the slots, at once or when they are queued.
func TestV4L2FallsBackToACopy(t *testing.T) {
	for _, refuse := range []func(*videoDouble){
		func(d *videoDouble) { d.user = false },
		func(d *videoDouble) { d.refuses = unix.EFAULT },
		func(d *videoDouble) { d.least = 9 },
	} {
		d := newDouble("UYVY")
		refuse(d)
		if how := checkFallback(t, d); !strings.HasPrefix(how, "MMAP, one copy (USERPTR: the driver ") {
			t.Errorf("frames come by %q", how)
		}
	}
}

func checkFallback(t *testing.T, d *videoDouble) string {
	r := runDouble(t, d, V4L2Config{Slots: 3})
	for i := range 5 {
		r.frame(t, d, nil)
		f := r.next(t)
		if !bytes.Equal(visible(f.Format, f.Bytes), d.expected(i, f.Format)) {
			t.Errorf("frame %d: other pixels", i)
		}
		f.Release()
	}
	return r.camera.How()
}

// TestV4L2Accounts checks gaps, damaged and short frames, the wrap of the driver's numbers, and frames without a slot.
func TestV4L2Accounts(t *testing.T) {
	for _, user := range []bool{true, false} {
		d := newDouble("GREY")
		d.user = user
		r := runDouble(t, d, V4L2Config{Slots: 3})
		steps := []struct {
			change func(*videodev.Buffer)
			want   int // sequence; -1: no frame
		}{
			{func(b *videodev.Buffer) { b.Sequence = 1<<32 - 2 }, 0},
			{nil, 1},
			{func(b *videodev.Buffer) { b.Sequence = 2 }, 4}, // after the wrap; two are lost
			{func(b *videodev.Buffer) { b.Flags |= videodev.FlagError }, -1},
			{nil, 6},
			{func(b *videodev.Buffer) { b.Used-- }, -1},
			{nil, 8},
			{func(b *videodev.Buffer) { b.Used = 1 << 31 }, -1},
			{nil, 10},
		}
		for i, s := range steps {
			r.frame(t, d, s.change)
			if s.want < 0 {
				continue
			}
			if f := r.next(t); f.Sequence != uint64(s.want) {
				t.Errorf("step %d: sequence %d", i, f.Sequence)
			} else {
				f.Release()
			}
		}
		if n := r.camera.Status().Counters; n["lost"] != 2 || n["damaged"] != 3 {
			t.Errorf("%v", n)
		}
	}
}

// TestV4L2HeldSlots checks that a slot that is held is not written, that a camera whose slots are all held rests, and that
// a released one is used again.
func TestV4L2HeldSlots(t *testing.T) {
	d := newDouble("GREY")
	r := runDouble(t, d, V4L2Config{Slots: 3, FrameTimeout: time.Millisecond})
	var held []*pipeline.Frame
	var copies [][]byte
	for range 3 {
		r.frame(t, d, nil)
		held = append(held, r.next(t))
		copies = append(copies, bytes.Clone(held[len(held)-1].Bytes))
	}
	eventually(t, "the camera rests", func() bool { return r.camera.State() == Idle && r.camera.Status().Idle })
	if d.frame(nil) {
		t.Fatal("the device has a buffer although all slots are held")
	}
	held[1].Release()
	r.frame(t, d, nil)
	f := r.next(t)
	if f.Slot() != held[1].Slot() {
		t.Errorf("slot %d instead of %d", f.Slot(), held[1].Slot())
	}
	f.Release()
	for _, i := range []int{0, 2} {
		if !bytes.Equal(held[i].Bytes, copies[i]) {
			t.Errorf("slot %d was written while it was held", i)
		}
		held[i].Release()
	}
}
