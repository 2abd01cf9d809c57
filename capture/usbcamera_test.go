// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"image"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/capture/uvctest"
	"github.com/tegracast/tegracast/pipeline"
)

var usbCameras = flag.Bool("usb-cameras", false, "plug USB cameras in software into this machine")

// TestUSBCameras runs the tests of USB cameras in the virtual Jetson, whose kernel drives them.
func TestUSBCameras(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	tests := vjetson.BuildTests(t, "arm64", ".")
	m := vjetson.StartTest(t, vjetson.Config{Modules: []string{"vhci_hcd", "uvcvideo"}, Files: map[string]string{"/usr/bin/capturetests": tests}})
	for _, name := range []string{"TestUnpluggedUSBCamera", "TestUSBCameraFiles", "TestUSBCameraFaults"} {
		out, err := m.Shell(t.Context(), "capturetests -test.run '^"+name+"$' -test.v -usb-cameras 2>&1")
		if err != nil || !strings.Contains(out, "--- PASS: "+name) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		t.Log(out)
	}
}

const usbWidth, usbHeight = 160, 120

// usbPicture returns picture n of a camera: YUYV with its number in the first bytes, or a JPEG file.
func usbPicture(n uint64, file bool) []byte {
	if file {
		img := image.NewYCbCr(image.Rect(0, 0, usbWidth, usbHeight), image.YCbCrSubsampleRatio420)
		for i := range img.Y {
			img.Y[i] = byte(uint64(i) + n)
		}
		var b bytes.Buffer
		_ = jpeg.Encode(&b, img, nil) // to memory
		return b.Bytes()
	}
	b := make([]byte, 2*usbWidth*usbHeight)
	for i := range b {
		b[i] = byte(i*7 + i/251 + int(n)*13)
	}
	binary.BigEndian.PutUint64(b, n)
	return b
}

func plugUSB(t *testing.T, change func(*uvctest.Config)) *uvctest.Camera {
	t.Helper()
	if !*usbCameras {
		t.Skip("NEEDS the virtual Jetson: TestUSBCameras runs it there")
	}
	cfg := uvctest.Config{Width: usbWidth, Height: usbHeight, Rate: 20, Picture: usbPicture}
	if change != nil {
		change(&cfg)
	}
	var camera *uvctest.Camera
	eventually(t, "the port is free", func() (plugged bool) {
		var err error
		camera, err = uvctest.Plug(cfg)
		return err == nil
	})
	return camera
}

// A usbRun is a running camera, whose frames have been checked.
type usbRun struct {
	*V4L2Camera
	mu     sync.Mutex
	frames int
	last   uint64
	wrong  string
	stop   context.CancelFunc
	ended  chan error
}

func runUSB(t *testing.T, pixel pipeline.PixelFormat, check func(b []byte) string) *usbRun {
	t.Helper()
	r := &usbRun{ended: make(chan error, 1)}
	cfg := V4L2Config{Device: "/dev/video0", Pixel: pixel, GainUnit: 16, Memory: hostMemory(t), FrameTimeout: 20 * time.Second, GiveUp: 5 * time.Minute}
	eventually(t, "the camera opens", func() bool {
		c, err := NewV4L2Camera(cfg)
		r.V4L2Camera = c
		return err == nil
	})
	t.Logf("%s by %s", r.Format(), r.How())
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() {
		r.ended <- r.Run(ctx, func(f *pipeline.Frame) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if why := check(f.Bytes); why != "" {
				r.wrong = why
			}
			if r.frames > 0 && f.Sequence <= r.last {
				r.wrong = "the numbers do not rise"
			}
			r.frames, r.last = r.frames+1, f.Sequence
			f.Release()
		})
	}()
	return r
}

func (r *usbRun) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.frames
}

// more waits for n more frames.
func (r *usbRun) more(t *testing.T, n int) {
	t.Helper()
	from := r.count()
	eventually(t, "more frames", func() bool { return r.count() >= from+n })
}

// end ends the camera, and checks that each number was a frame, or is counted as lost.
func (r *usbRun) end(t *testing.T) map[string]uint64 {
	t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	counters := r.Status().Counters
	if missing := r.last + 1 - uint64(r.frames); r.wrong != "" || counters["lost"]+counters["damaged"]+counters["no_slot"] < missing {
		t.Errorf("%s; %d frames up to %d, %v", r.wrong, r.frames, r.last, counters)
	}
	t.Logf("%d frames, %v", r.frames, counters)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	return counters
}

func checkYUYV(b []byte) string {
	b = bytes.Clone(b)
	for i := 0; i < len(b); i += 2 {
		b[i], b[i+1] = b[i+1], b[i]
	}
	if !bytes.Equal(b, usbPicture(binary.BigEndian.Uint64(b), false)) {
		return "a picture has other bytes"
	}
	return ""
}

// TestUnpluggedUSBCamera pulls a camera out twenty times, in the middle of its pictures, and plugs it in again: it comes
// back with its settings, and no frame is wrong.
func TestUnpluggedUSBCamera(t *testing.T) {
	camera := plugUSB(t, nil)
	r := runUSB(t, pipeline.UYVY, checkYUYV)
	if exposure, gain := r.Adjustable(); !exposure || !gain {
		t.Errorf("exposure can be set: %t, gain: %t", exposure, gain)
	}
	if _, err := r.SetExposure(20*time.Millisecond, 4); err != nil {
		t.Error(err)
	}
	for range 20 {
		r.more(t, 5)
		if v, gain := camera.Value(uvctest.Exposure), camera.Value(uvctest.Gain); v != 200 || gain != 64 {
			t.Errorf("the camera exposes for %d times 100 µs, not 200, with a gain of %d, not 64", v, gain)
		}
		time.Sleep(rand.N(100 * time.Millisecond))
		if err := camera.Unplug(); err != nil {
			t.Error(err)
		}
		time.Sleep(rand.N(300 * time.Millisecond))
		camera = plugUSB(t, nil)
	}
	r.more(t, 5)
	r.end(t)
	if err := camera.Unplug(); err != nil {
		t.Error(err)
	}
}

// TestUSBCameraFiles takes Motion JPEG: each frame is one of the camera's files.
func TestUSBCameraFiles(t *testing.T) {
	sent := map[string]bool{}
	var mu sync.Mutex
	camera := plugUSB(t, func(c *uvctest.Config) {
		c.Picture = func(n uint64, file bool) []byte {
			b := usbPicture(n, file)
			mu.Lock()
			defer mu.Unlock()
			sent[string(b)] = true
			return b
		}
	})
	r := runUSB(t, pipeline.MJPEG, func(b []byte) string {
		mu.Lock()
		defer mu.Unlock()
		if !sent[string(b)] {
			return "a file was never sent"
		}
		return ""
	})
	r.more(t, 50)
	r.end(t)
	if err := camera.Unplug(); err != nil {
		t.Error(err)
	}
}

// TestUSBCameraFaults sends pictures with the error bit, and pictures that are cut: none becomes a frame.
func TestUSBCameraFaults(t *testing.T) {
	camera := plugUSB(t, func(c *uvctest.Config) {
		c.Faulty = func(n uint64) uvctest.Fault {
			return []uvctest.Fault{uvctest.None, uvctest.None, uvctest.Error, uvctest.None, uvctest.Short, uvctest.Skipped}[n%6]
		}
	})
	r := runUSB(t, pipeline.UYVY, checkYUYV)
	r.more(t, 30)
	if counters := r.end(t); counters["damaged"]+counters["lost"] < 8 {
		t.Errorf("%v", counters)
	}
	if err := camera.Unplug(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}
