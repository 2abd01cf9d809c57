// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

var vivid = flag.Int("vivid", 0, "number of frames of each format to take from the devices of the kernel's vivid")

// vividNode returns the device file of the camera of one of vivid's devices.
func vividNode(t *testing.T, device int) string {
	t.Helper()
	for _, path := range (videodev.Host{}).Videos() {
		name, _ := os.ReadFile(filepath.Join("/sys/class/video4linux", filepath.Base(path), "name"))
		if strings.TrimSpace(string(name)) == fmt.Sprintf("vivid-%03d-vid-cap", device) {
			return path
		}
	}
	t.Fatalf("vivid has no device %d", device)
	return ""
}

// set sets controls of vivid, by name.
func set(t *testing.T, path string, values ...string) {
	t.Helper()
	f, err := videodev.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := videodev.Settings(f)
	for i := 0; i < len(values); i += 2 {
		found := false
		for k := range list {
			if s := &list[k]; s.Name == values[i] {
				found = true
				v, err := s.Parse(values[i+1])
				if err == nil {
					err = videodev.Set(f, videodev.Value{Setting: s, Value: v})
				}
				if err != nil && !errors.Is(err, unix.ENODEV) { // of Disconnect
					t.Fatalf("%s: %v", values[i], err)
				}
			}
		}
		if !found {
			t.Fatalf("vivid has no control %q", values[i])
		}
	}
}

// reference reads a frame by read(2), whose path shares nothing with the camera's, after setting a format.
func reference(t *testing.T, path string, code uint32) []byte {
	t.Helper()
	f, err := videodev.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kind := uint32(videodev.Capture)
	if about, err := videodev.Ask(f); err != nil {
		t.Fatal(err)
	} else if about.Can&videodev.CanCaptureMulti != 0 {
		kind = videodev.CaptureMulti
	}
	l, err := videodev.Choose(f, kind, code, 320, 180)
	if err != nil || l.Pixels != code {
		t.Fatalf("%s: %+v %v", videodev.Letters(code), l, err)
	}
	if _, err := videodev.SetRate(f, kind, videodev.Fraction{Numerator: 1, Denominator: 60}); err != nil {
		t.Fatal(err)
	}
	if len(l.Planes) > 1 {
		return nil // vivid cannot be read then
	}
	b := make([]byte, l.Planes[0].Size)
	var n int
	eventually(t, "a frame by read", func() bool {
		n, err = unix.Read(int(f), b)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err != nil || n != len(b) {
		t.Fatalf("read: %d bytes of %d, %v", n, len(b), err)
	}
	return b
}

// TestVivid takes frames of all formats of the kernel's vivid, into slots and by a copy, and compares every byte with a
// frame that was read in another way, and the bars with the colours that they have. Device 0 takes the user's memory,
// device 1 has a contiguous allocator, which does not, and device 2 has several planes. With few frames it takes a part of
// the formats. Then come losses, errors, wrong starts and a camera that goes and comes back.
func TestVivid(t *testing.T) {
	if *vivid == 0 {
		t.Skip("NEEDS the virtual Jetson with vivid: TestMachine and TestCameras of board/vjetson run it there")
	}
	all := []string{
		"UYVY", "RG12", "BA81", "NV12", "RGGB", "GRBG", "GBRG", "RG10", "BA10", "GB10", "BG10", "BA12", "GB12", "BG12", "RG16", "GR16", "GB16", "BYR2",
		"GREY", "Y10 ", "Y12 ", "Y16 ", "YUYV", "YU12", "RGB3",
	}
	several := []string{"NM12", "YM12", "UYVY", "RG10"}
	if *vivid < 1000 {
		all, several = all[:4], several[:1]
	}
	for device, codes := range map[int][]string{0: all, 1: all, 2: several} {
		path := vividNode(t, device)
		set(t, path, "Test Pattern", "100% Colorbar", "OSD Text Mode", "None")
		for _, code := range codes {
			t.Run(fmt.Sprintf("device %d %s", device, strings.TrimSpace(code)), func(t *testing.T) { takeVivid(t, device, path, videodev.Code(code)) })
		}
	}
	path := vividNode(t, 0)
	t.Run("losses", func(t *testing.T) { loseVivid(t, path) })
	t.Run("faults", func(t *testing.T) { breakVivid(t, path) })
	t.Run("signal", func(t *testing.T) { signalVivid(t, path) })
	t.Run("disconnected", func(t *testing.T) { disconnectVivid(t, path) })
}

// openVivid opens a camera of vivid at 60 frames a second.
func openVivid(t *testing.T, path string, pixel pipeline.PixelFormat) *V4L2Camera {
	t.Helper()
	c, err := NewV4L2Camera(V4L2Config{
		Device: path, Width: 320, Height: 180, Pixel: pixel, Rate: pipeline.Rate{Num: 60, Den: 1}, Memory: hostMemory(t), FrameTimeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// runVivid runs a camera until each has seen enough frames, and closes it.
func runVivid(t *testing.T, c *V4L2Camera, each func(*pipeline.Frame) (enough bool)) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	enough := false
	err := c.Run(ctx, func(f *pipeline.Frame) {
		if !enough && each(f) {
			enough = true
			stop()
		}
		f.Release()
	})
	if err != nil || !enough {
		t.Errorf("the camera ended: %v, %v", err, c.Status().Counters)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func takeVivid(t *testing.T, device int, path string, code uint32) {
	want := reference(t, path, code)
	c := openVivid(t, path, 0) // as it is set now
	if how := map[int]string{0: "USERPTR", 1: "MMAP, one copy", 2: "USERPTR"}[device]; !strings.HasPrefix(c.How(), how) {
		t.Errorf("frames come by %s", c.How())
	}
	f := c.Format()
	if code == videodev.Code("YUYV") {
		for i := 0; i < len(want); i += 2 {
			want[i], want[i+1] = want[i+1], want[i]
		}
	}
	if sent := c.session.transfer.layout.Pixels; sent != code {
		t.Errorf("the device sends %s", videodev.Letters(sent))
	}
	n, last := 0, uint64(0)
	begun := time.Now()
	runVivid(t, c, func(frame *pipeline.Frame) bool {
		pixels := frame.Bytes
		if n == 0 {
			checkBars(t, f, pixels)
			if want == nil {
				want = bytes.Clone(pixels)
			}
		}
		if !bytes.Equal(pixels, want) {
			t.Errorf("frame %d: other pixels than by read(2)", frame.Sequence)
			return true
		}
		if n > 0 && frame.Sequence <= last {
			t.Errorf("frame %d after %d", frame.Sequence, last)
		}
		if age := time.Since(frame.Times.Captured); age < 0 || age > time.Minute || frame.Times.Captured.Before(begun) {
			t.Errorf("captured %v ago", age)
		}
		n, last = n+1, frame.Sequence
		return n == *vivid
	})
}

// checkBars compares the eight bars, white, yellow, cyan, green, magenta, red, blue and black, with what they should be:
// samples of a sensor by the filters of the mosaic, and luma falling from bar to bar.
func checkBars(t *testing.T, f pipeline.Format, b []byte) {
	t.Helper()
	at := func(x, y int) int { // a sample, or luma
		switch g := f.Pixel.Group(); {
		case f.Pixel == pipeline.UYVY:
			return int(b[y*f.Stride+2*x+1])
		case f.Pixel == pipeline.RGB24:
			p := b[y*f.Stride+3*x:]
			return int(p[0])*299 + int(p[1])*587 + int(p[2])*114
		case g.Bytes == 1 || f.Pixel == pipeline.NV12 || f.Pixel == pipeline.I420:
			return int(b[y*f.Stride+x])
		}
		return int(binary.LittleEndian.Uint16(b[y*f.Stride+2*x:]))
	}
	samples, raw := f.Pixel.Samples()
	if !raw || samples.Mosaic == pipeline.Mono {
		for bar := 1; bar < 8; bar++ {
			if a, b := at(40*bar-20, 90), at(40*bar+20, 90); b >= a {
				t.Errorf("%s: bar %d is as bright as the one before: %d after %d", f.Pixel, bar, b, a)
			}
		}
		return
	}
	bars := map[byte]string{'R': "11001100", 'G': "11110000", 'B': "10101010"}
	for i, filter := range []byte([...]string{"RGGB", "GRBG", "GBRG", "BGGR"}[samples.Mosaic]) {
		for bar := range 8 {
			v, most := at(40*bar+20+i%2, 90+i/2), 1<<samples.Bits
			if v >= most || (v > most/2) != (bars[filter][bar] == '1') {
				t.Errorf("%s: bar %d has %d under a filter of %c", f.Pixel, bar, v, filter)
			}
		}
	}
}

// loseVivid lets vivid drop frames, mark them as faulty, and wrap its numbers around.
func loseVivid(t *testing.T, path string) {
	set(t, path, "Wrap Sequence Number", "true", "Percentage of Dropped Buffers", "30")
	defer set(t, path, "Wrap Sequence Number", "false", "Percentage of Dropped Buffers", "0")
	c := openVivid(t, path, pipeline.UYVY)
	frames, first, last := 0, uint64(0), uint64(0)
	var damaged uint64
	runVivid(t, c, func(f *pipeline.Frame) bool {
		if frames++; frames == 1 {
			first = f.Sequence
		}
		if frames%30 == 10 && frames < 100 {
			set(t, path, "Inject V4L2_BUF_FLAG_ERROR", "true")
			damaged++
		}
		last = f.Sequence
		return frames >= 150 // beyond the wrap
	})
	n := c.Status().Counters
	if taken := last - first + 1; uint64(frames)+n["lost"]+n["damaged"] != taken || n["lost"] < 10 || n["damaged"] != damaged || last > 1000 {
		t.Errorf("%d frames up to number %d, %d faults: %v", frames, last, damaged, n)
	}
}

// breakVivid lets the stream fail to start, and fail while it runs.
func breakVivid(t *testing.T, path string) {
	c := openVivid(t, path, pipeline.UYVY)
	set(t, path, "Inject VIDIOC_STREAMON Error", "true")
	frames := 0
	runVivid(t, c, func(f *pipeline.Frame) bool {
		if frames++; frames == 10 {
			set(t, path, "Inject Fatal Streaming Error", "true")
		}
		return frames >= 20
	})
	if n := c.Status().Counters; n[Reopening.String()] < 2 {
		t.Errorf("%v", n)
	}
}

// signalVivid takes frames of vivid's HDMI input, whose signal goes and comes back.
func signalVivid(t *testing.T, path string) {
	choose := func(input int32) {
		f, err := videodev.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		const setInput = 3<<30 | 4<<16 | 'V'<<8 | 39 // VIDIOC_S_INPUT
		if err := f.Ioctl(setInput, unsafe.Pointer(&input)); err != nil {
			t.Fatal(err)
		}
	}
	choose(3)
	defer choose(0)
	c, err := NewV4L2Camera(V4L2Config{Device: path, Pixel: pipeline.UYVY, Memory: hostMemory(t), FrameTimeout: 10 * time.Second, GiveUp: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(c.Format())
	frames, back := 0, make(chan struct{})
	runVivid(t, c, func(*pipeline.Frame) bool {
		if frames++; frames == 5 {
			set(t, path, "DV Timings Signal Mode", "No Signal", "Inject Fatal Streaming Error", "true") // vivid's frames do not end by themselves
			go func() {
				defer close(back)
				for c.Status().Counters[Reopening.String()] < 3 && c.State() != Ended {
					time.Sleep(time.Millisecond)
				}
				set(t, path, "DV Timings Signal Mode", "Current DV Timings")
			}()
		}
		return frames >= 10 && c.Status().Counters[Reopening.String()] > 0
	})
	<-back
	if n := c.Status().Counters[Reopening.String()]; n < 3 {
		t.Errorf("reopened %d times: the signal was not missed", n)
	}
}

// disconnectVivid unplugs the camera. vivid plugs it in again when nobody uses it any more.
func disconnectVivid(t *testing.T, path string) {
	c := openVivid(t, path, pipeline.UYVY)
	frames := 0
	runVivid(t, c, func(f *pipeline.Frame) bool {
		if frames++; frames == 10 {
			set(t, path, "Disconnect", "true")
		}
		return frames >= 30
	})
	if n := c.Status().Counters; n[Reopening.String()] == 0 {
		t.Errorf("%v", n)
	}
}
