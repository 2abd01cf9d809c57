// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

func newDouble(multi bool, pixels string) *double {
	return &double{multi: multi, offers: []uint32{videodev.Code("GREY"), videodev.Code(pixels)}, lines: 1, controls: map[uint32]int{}, memory: map[uint32][][]byte{}}
}

// opened opens an H.264 encoder on the double.
func (d *double) opened(f pipeline.Format) (*Encoder, error) {
	return opened(func() (node, error) { return d, nil }, "/dev/video7", f, 2_000_000)
}

// TestPictures checks that every picture layout that a device may use receives the correct picture, that units leave
// one by one, that key frames have parameter sets whether or not the device repeats them, and that nothing is left at
// the end.
func TestPictures(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 200, 90, 30)
	for _, multi := range []bool{false, true} {
		for _, pixels := range []string{"YU12", "YM12", "NV12", "NM12"} {
			for _, repeats := range []bool{false, true} {
				if d := newDouble(multi, pixels); multi || pixels[1] != 'M' {
					d.sets = repeats
					encodes(t, d, f)
				}
			}
		}
	}
}

func encodes(t *testing.T, d *double, f pipeline.Format) {
	t.Helper()
	e, err := d.opened(f)
	if err != nil {
		t.Fatal(err)
	}
	sps, pps := e.ParameterSets()
	if !bytes.Equal(sps, []byte{0x67, 66, 192, 30}) || !bytes.Equal(pps, []byte{0x68, 1, 2, 3}) {
		t.Errorf("parameter sets % x, % x", sps, pps)
	}
	for n := range 5 {
		frame := rtptest.Frame(f, n)
		key := n%2 == 0
		unit, err := e.Encode(make([]byte, 0, f.Size()), frame, key)
		if err != nil || !ends(unit, frame.Bytes) {
			t.Fatalf("%s, several planes %v: frame %d: % x, %v", videodev.Letters(d.pixels), d.multi, n, unit, err)
		}
		if begins := bytes.HasPrefix(unit, append(append([]byte(nil), unitStart...), sps...)); begins != key || bytes.Count(unit, sps) > 1 {
			t.Errorf("frame %d, key frame %v: % x", n, key, unit)
		}
	}
	if !d.multi && d.span != videodev.FullRange {
		t.Errorf("range of samples %d", d.span)
	}
	if err := e.SetBitrate(1_000_000); err != nil || d.controls[controlBitrate] != 1_000_000 {
		t.Errorf("bit rate: %v, %v", d.controls, err)
	}
	if d.controls[controlBFrames] != 0 || d.controls[controlMode] != modeConstant || d.controls[controlProfile] != profileConstrained {
		t.Errorf("controls: %v", d.controls)
	}
	if err := e.Close(); err != nil || d.leaks() {
		t.Errorf("at the end: %v, %+v", err, d)
	}
}

// TestRefusals checks that an unusable device is rejected with the reason, and closed.
func TestRefusals(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 200, 90, 30)
	for want, d := range map[string]*double{
		`it takes ["GREY" "RGB3"], and no 4:2:0`: newDouble(true, "RGB3"),
		"bit rate 2000000: invalid argument":     {without: []uint32{controlBitrate}},
		"key frame: invalid argument":            {without: []uint32{controlForceKey, controlForceOld}},
		"it is no device of V4L2":                {cannot: videodev.QueryCapabilities},
		"H264 of 200x90: input/output error":     {cannot: videodev.SetFormat},
		"buffers of H264: input/output error":    {cannot: videodev.MakeBuffers},
		"buffer 0: input/output error":           {cannot: videodev.QueryBuffer},
		"a buffer for coded data":                {cannot: videodev.Enqueue},
		"it does not start":                      {cannot: videodev.StreamOn},
		"frame 0: input/output error":            {cannot: videodev.Dequeue},
		"it codes 200x96 instead of 200x90":      {lines: 16, cannot: videodev.SetSelection},
		"could not encode it":                    {fails: 1},
		"nothing for 5s":                         {hangs: 1},
	} {
		if d.offers == nil {
			n := newDouble(true, "YM12")
			n.without, n.cannot, n.fails, n.hangs = d.without, d.cannot, d.fails, d.hangs
			n.lines = max(d.lines, 1)
			d = n
		}
		if _, err := d.opened(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if d.mapped != 0 || !d.closed {
			t.Errorf("%s: %d are mapped, closed %v", want, d.mapped, d.closed)
		}
	}
	if _, err := New("/dev/null", f, 1_000_000); err == nil || !strings.Contains(err.Error(), "/dev/null: it is no device of V4L2: inappropriate ioctl") {
		t.Errorf("/dev/null: %v", err)
	}
	const without = "used through NVIDIA's libraries: libnvv4l2.so cannot be opened"
	if _, err := New("/dev/v4l2-nvenc", f, 1_000_000); !hasNVIDIA() && (err == nil || !strings.Contains(err.Error(), without)) {
		t.Errorf("NVIDIA's: %v", err)
	}
	if _, err := New("/dev/null", rtptest.Format(t, pipeline.UYVY, 200, 90, 30), 1_000_000); !errors.Is(err, codec.ErrFormat) {
		t.Errorf("pixels: %v", err)
	}
}

// TestErrors checks that a picture that the device could not encode is an error and is followed by a key frame, and
// that a device that does not respond is left alone and reopened later.
func TestErrors(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 200, 90, 30)
	d := newDouble(true, "YM12")
	d.fails, d.hangs = 3, 5 // the first picture is the encoder's own
	e, err := d.opened(f)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for n := range 5 {
		unit, err := e.Encode(make([]byte, 0, f.Size()), rtptest.Frame(f, n), false)
		switch {
		case errors.Is(err, ErrEncode):
			all = append(all, "error")
		case err == nil && hasSets(unit):
			all = append(all, "key")
		case err == nil:
			all = append(all, "picture")
		}
	}
	if got := strings.Join(all, " "); got != "picture error key error error" || d.taken != 5 {
		t.Errorf("%s, %d pictures", got, d.taken)
	}
	if _, err := e.Encode(make([]byte, 0, 40), rtptest.Frame(f, 0), false); !errors.Is(err, ErrEncode) {
		t.Error(err)
	}
	e.since = e.since.Add(-again)
	d.hangs = d.taken + 1
	if _, err := e.Encode(make([]byte, 0, f.Size()), rtptest.Frame(f, 0), false); err == nil || !strings.Contains(err.Error(), "reopening: encoder /dev/video7") {
		t.Errorf("opened again in vain: %v", err)
	}
	e.since = e.since.Add(-again)
	d.closed = false
	frame := rtptest.Frame(f, 7)
	if unit, err := e.Encode(make([]byte, 0, f.Size()), frame, false); err != nil || !hasSets(unit) || !ends(unit, frame.Bytes) || d.controls[controlBitrate] != 2_000_000 {
		t.Errorf("opened again: % x, %v", unit, err)
	}
	if err := e.Close(); err != nil || d.leaks() {
		t.Errorf("at the end: %v, %+v", err, d)
	}
}

// TestApart checks a device that delivers empty buffers and parameter sets in a separate buffer, has only the older
// control for key frames, and does not report the capabilities of its device file.
func TestApart(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 200, 90, 30)
	d := newDouble(true, "YM12")
	d.apart, d.without, d.old = true, []uint32{controlForceKey}, true
	encodes(t, d, f)
}

// TestLevel checks that the level is the lowest that allows the pictures.
func TestLevel(t *testing.T) {
	for want, f := range map[int]pipeline.Format{
		8: {Width: 640, Height: 480, Rate: pipeline.Rate{Num: 30, Den: 1}}, 9: {Width: 1280, Height: 720, Rate: pipeline.Rate{Num: 30, Den: 1}},
		11: {Width: 1920, Height: 1080, Rate: pipeline.Rate{Num: 30000, Den: 1001}}, 13: {Width: 1920, Height: 1080, Rate: pipeline.Rate{Num: 60, Den: 1}},
		15: {Width: 3840, Height: 2160, Rate: pipeline.Rate{Num: 30, Den: 1}}, 16: {Width: 3840, Height: 2160, Rate: pipeline.Rate{Num: 60, Den: 1}},
	} {
		if got := level(f); got != want {
			t.Errorf("%dx%d, %s: %d, want %d", f.Width, f.Height, f.Rate, got, want)
		}
	}
}
