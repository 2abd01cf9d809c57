// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// TestV4L2Times checks which of the driver's timestamps become times of a frame.
func TestV4L2Times(t *testing.T) {
	d := newDouble("GREY")
	r := runDouble(t, d, V4L2Config{Slots: 3})
	take := func(flags uint32, back time.Duration) pipeline.Times {
		r.frame(t, d, func(b *videodev.Buffer) {
			b.Flags = flags
			us := b.Seconds*1e6 + b.Microseconds - back.Microseconds()
			b.Seconds, b.Microseconds = us/1e6, us%1e6
		})
		f := r.next(t)
		defer f.Release()
		return f.Times
	}
	const back = 20 * time.Millisecond
	if x := take(videodev.FlagStampMonotone|videodev.FlagStampStart, back); x.ExposureStart.IsZero() || x.Captured.Sub(x.ExposureStart) < back {
		t.Errorf("start of exposure: %+v", x)
	}
	before := time.Now()
	if x := take(videodev.FlagStampMonotone, back); !x.ExposureStart.IsZero() || x.Captured.Before(before.Add(-back-time.Millisecond)) || time.Since(x.Captured) < back {
		t.Errorf("end of frame: %+v", x)
	}
	for _, flags := range []uint32{0, videodev.FlagStampCopy | videodev.FlagStampStart} {
		before := time.Now()
		if x := take(flags, time.Second); !x.ExposureStart.IsZero() || x.Captured.Before(before) {
			t.Errorf("flags %#x: %+v", flags, x)
		}
	}
	if x := take(videodev.FlagStampMonotone|videodev.FlagStampStart, -time.Hour); !x.ExposureStart.IsZero() {
		t.Errorf("in the future: %+v", x)
	}
}

// TestV4L2TegraSamples checks samples that stand at the top of their words, as NVIDIA's driver stores them on Orin.
func TestV4L2TegraSamples(t *testing.T) {
	for _, user := range []bool{true, false} {
		d := newDouble("RG10")
		d.driver, d.soc, d.user = "tegra-video", "nvidia,tegra234", user
		r := runDouble(t, d, V4L2Config{Slots: 3})
		r.frame(t, d, nil)
		f := r.next(t)
		want := make([]byte, len(f.Bytes))
		pattern(want, 0)
		for i := 0; i < len(want); i += 2 {
			v := (uint16(want[i]) | uint16(want[i+1])<<8) >> 6
			want[i], want[i+1] = byte(v), byte(v>>8)
		}
		if !bytes.Equal(f.Bytes, want) || !strings.Contains(r.camera.How(), "samples shifted down by 6 bits") {
			t.Errorf("%s: other samples", r.camera.How())
		}
		f.Release()
	}
}

// TestV4L2Exposure checks exposure and gain by NVIDIA's controls, with the factors of the sensor's mode, by UVC's, and by
// those of a sensor in lines.
func TestV4L2Exposure(t *testing.T) {
	properties := make([]uint32, 2*36)
	properties[36], properties[37], properties[36+16] = 100, 1000, 1_000_000 // of mode 1
	const base = 0x009a2000
	good := videodev.PadFormat{Code: videodev.BusCode(videodev.Code("RG10")), Width: 64, Height: 48}
	for name, c := range map[string]struct {
		controls       []*doubleControl
		sensor         bool
		unit           float64
		exposure, gain uint32 // numbers of the controls
		ms8, gain2     int64  // their values for 8 ms and a gain of 2
	}{
		"Tegra": {[]*doubleControl{
			{id: base + 8, name: "Sensor Mode", kind: 5, max: 9, value: 1},
			{id: base + 9, name: "Gain", kind: 5, min: 100, max: 1600, step: 1, value: 100},
			{id: base + 10, name: "Exposure", kind: 5, min: 13, max: 33_000, step: 1, value: 13},
			{id: base + 11, name: "Frame Rate", kind: 5, min: 2000, max: 60_000, step: 1, value: 30_000},
			{id: base + 100, name: "Bypass Mode", kind: 9, max: 1, value: 1},
			{id: base + 107, name: "Sensor Control Properties", kind: 0x102, flags: 4, array: properties},
		}, false, 0, base + 10, base + 9, 8000, 200},
		"UVC": {[]*doubleControl{
			{id: videodev.ExposureAuto, name: "Auto Exposure", kind: 3, max: 3, value: 3, items: []string{"Auto Mode", "Manual Mode", "", "Aperture Priority Mode"}},
			{id: videodev.ExposureAbsolute, name: "Exposure Time, Absolute", kind: 1, min: 3, max: 2047, step: 1, value: 250},
			{id: videodev.Gain, name: "Gain", kind: 1, min: 0, max: 255, step: 1, value: 64},
		}, false, 64, videodev.ExposureAbsolute, videodev.Gain, 80, 128},
		"lines": {[]*doubleControl{
			{id: videodev.Exposure, name: "Exposure", kind: 1, min: 4, max: 4000, step: 1, value: 100, sensor: true},
			{id: videodev.AnalogGain, name: "Analogue Gain", kind: 1, min: 16, max: 255, step: 1, value: 16, sensor: true},
			{id: videodev.PixelRate, name: "Pixel Rate", kind: 5, min: 1_000_000, max: 1_000_000, step: 1, value: 1_000_000, flags: 4, sensor: true},
			{id: videodev.HorizontalBlank, name: "Horizontal Blanking", kind: 1, min: 36, max: 36, step: 1, value: 36, flags: 4, sensor: true},
		}, true, 0, videodev.Exposure, videodev.AnalogGain, 80, 32}, // a line takes 100 pixels, or 100 µs
	} {
		t.Run(name, func(t *testing.T) {
			d := newDouble("RG10")
			d.controls, d.sensor = c.controls, c.sensor
			d.pads = map[int]videodev.PadFormat{-1: good, 0: good}
			r := runDouble(t, d, V4L2Config{Slots: 3, GainUnit: c.unit})
			if e, g := r.camera.Adjustable(); !e || !g {
				t.Fatalf("exposure %t, gain %t", e, g)
			}
			from, err := r.camera.SetExposure(8*time.Millisecond, 2)
			if err != nil || from == 0 || d.value(c.exposure) != c.ms8 || d.value(c.gain) != c.gain2 {
				t.Errorf("from frame %d: exposure %d, gain %d, %v", from, d.value(c.exposure), d.value(c.gain), err)
			}
			if last := d.settings[len(d.settings)-1]; !slices.Equal(last, []uint32{c.exposure, c.gain}) {
				t.Errorf("both are not set at once: %#x", d.settings)
			}
			if e, g, err := r.camera.Exposure(); err != nil || e != 8*time.Millisecond || g != 2 {
				t.Errorf("read back: %v, %v, %v", e, g, err)
			}
			switch name {
			case "Tegra":
				if v := d.value(base + 100); v != 0 {
					t.Errorf("the pixels go to the ISP: bypass mode %d", v)
				}
				if f := r.camera.Format(); f.Rate != (pipeline.Rate{Num: 30, Den: 1}) {
					t.Errorf("rate %s", f.Rate)
				}
			case "UVC":
				if v := d.value(videodev.ExposureAuto); v != videodev.ExposureManual {
					t.Errorf("the exposure is automatic: %d", v)
				}
			}
		})
	}
}

// TestV4L2RangesFollow checks that an exposure is set that the sensor takes only after the rate, or a configured blanking, has
// made its frames longer.
func TestV4L2RangesFollow(t *testing.T) {
	good := videodev.PadFormat{Code: videodev.BusCode(videodev.Code("RG10")), Width: 64, Height: 48}
	for name, cfg := range map[string]V4L2Config{
		"rate":     {Rate: pipeline.Rate{Num: 10, Den: 1}, Exposure: 50 * time.Millisecond},
		"blanking": {Controls: map[string]string{"vertical_blanking": "952", "exposure": "500"}},
	} {
		d := newDouble("RG10")
		exposure := &doubleControl{id: videodev.Exposure, name: "Exposure", kind: 1, min: 4, max: 90, step: 1, value: 10, sensor: true}
		blank := &doubleControl{id: videodev.VerticalBlank, name: "Vertical Blanking", kind: 1, min: 4, max: 9000, step: 1, value: 52, sensor: true}
		d.controls = []*doubleControl{
			exposure, blank, // a line takes 100 pixels, or 100 µs
			{id: videodev.PixelRate, name: "Pixel Rate", kind: 5, min: 1_000_000, max: 1_000_000, step: 1, value: 1_000_000, flags: 4, sensor: true},
			{id: videodev.HorizontalBlank, name: "Horizontal Blanking", kind: 1, min: 36, max: 36, step: 1, value: 36, flags: 4, sensor: true},
		}
		d.rate, d.sensor, d.pads = 0, true, map[int]videodev.PadFormat{-1: good, 0: good}
		d.after = map[uintptr]func(){videodev.SetControls: func() { exposure.max = 48 + blank.value - 10 }}
		cfg.Slots = 2
		c := openDouble(t, d, cfg)
		if d.value(videodev.VerticalBlank) != 952 || d.value(videodev.Exposure) != 500 {
			t.Errorf("%s: blanking %d, exposure %d", name, d.value(videodev.VerticalBlank), d.value(videodev.Exposure))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestV4L2LayoutIsReadLast takes frames of a device whose lines become longer with the rate, and with a control, and of one
// that tells no format before one is set.
func TestV4L2LayoutIsReadLast(t *testing.T) {
	for request, cfg := range map[uintptr]V4L2Config{
		videodev.SetParameters: {Slots: 3, Rate: pipeline.Rate{Num: 30, Den: 1}},
		videodev.SetControls:   {Slots: 3, Controls: map[string]string{"gain": "2"}},
		videodev.SetFormat:     {Slots: 3, Pixel: pipeline.RGGB10, Width: 64, Height: 48},
	} {
		d := newDouble("RG10")
		d.controls = []*doubleControl{{id: videodev.Gain, name: "Gain", kind: 1, min: 1, max: 4, step: 1}}
		if request == videodev.SetFormat {
			d.fails[videodev.GetFormat] = unix.ENODATA
		}
		d.after = map[uintptr]func(){request: func() { d.padding = 64; clear(d.fails) }}
		checkDouble(t, d, cfg)
	}
}

// TestV4L2FlipsBeforeTheFormat configures the mosaic that a sensor has when its picture is flipped.
func TestV4L2FlipsBeforeTheFormat(t *testing.T) {
	d := newDouble("RG10")
	d.controls = []*doubleControl{{id: 0x00980914, name: "Horizontal Flip", kind: 2, max: 1, step: 1, flags: 0x0400}}
	d.after = map[uintptr]func(){videodev.SetControls: func() { d.codes[0], d.pixels = videodev.Code("BA10"), videodev.Code("BA10") }}
	checkDouble(t, d, V4L2Config{Slots: 3, Pixel: pipeline.GRBG10, Controls: map[string]string{"horizontal_flip": "true"}})
}

// TestV4L2Allocations checks that a frame allocates nothing.
func TestV4L2Allocations(t *testing.T) {
	d := newDouble("RG10")
	d.multi = true
	c := openDouble(t, d, V4L2Config{Slots: 4})
	s := c.session
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	emit, whole := func(f *pipeline.Frame) { f.Release() }, uint32(d.sizes()[0])
	taken := testing.AllocsPerRun(100, func() {
		b := s.describe(0)
		b.Used, s.args.planes[0].Used, b.Flags = whole, whole, videodev.FlagStampMonotone
		s.buffers[0].slot, s.queued = -1, s.queued-1
		if err := s.take(b, 0, 0, time.Now(), emit); err != nil {
			t.Fatal(err)
		}
		c.slots[0], s.buffers[0].slot, s.queued = slotQueued, 0, s.queued+1
	})
	if taken > 0 {
		t.Errorf("%v allocations for a frame", taken)
	}
	if err := errors.Join(s.stop(), c.Close()); err != nil {
		t.Error(err)
	}
}

// BenchmarkV4L2Transfer measures what becomes of a frame of 1080p after the DMA: by a copy, and in place.
func BenchmarkV4L2Transfer(b *testing.B) {
	layout := func(code string, line int) videodev.Layout {
		return videodev.Layout{
			Width: 1920, Height: 1080, Pixels: videodev.Code(code), Planes: []videodev.PlaneFormat{{Size: uint32(line * 1080), Stride: uint32(line)}},
		}
	}
	for name, c := range map[string]struct {
		code  string
		line  int
		shift int
		tight bool
	}{
		"copied": {"RG10", 3840, 0, false}, "shifted": {"RG10", 3840, 6, false}, "swapped": {"YUYV", 3840, 0, false}, "unpadded": {"RG10", 3840 + 64, 0, true},
		"unpacked": {"pREE", 3360, 0, false},
	} {
		code, _ := v4l2CodeOf(videodev.Code(c.code))
		t, err := newTransfer(code, layout(c.code, c.line), pipeline.Rate{}, c.shift, c.tight)
		if err != nil {
			b.Fatal(err)
		}
		slot, buffer := make([]byte, t.size()), make([]byte, c.line*1080)
		for how, from := range map[string][]byte{"copy": buffer, "in place": slot} {
			if how == "in place" && !t.inPlace {
				continue
			}
			b.Run(name+"/"+how, func(b *testing.B) {
				b.SetBytes(int64(len(buffer)))
				for b.Loop() {
					t.copy(slot, [][]byte{from})
				}
			})
		}
	}
}
