// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// need finds a program, or skips the test.
func need(t *testing.T, program, debian string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("NEEDS %s: apt-get install %s (make setup-test does)", program, debian)
	}
	return path
}

func output(t testing.TB, program string, args ...string) []byte {
	t.Helper()
	var errs bytes.Buffer
	c := exec.CommandContext(t.Context(), program, args...)
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil || errs.Len() > 0 {
		t.Fatalf("%v: %v\n%s", c, err, errs.String())
	}
	return out
}

// TestDNGHasTheSamples reads the samples with dcraw and libraw, and checks the colour filter pattern.
func TestDNGHasTheSamples(t *testing.T) {
	dcraw, identify := need(t, "dcraw", "dcraw"), need(t, "raw-identify", "libraw-bin")
	unprocessed := need(t, "unprocessed_raw", "libraw-bin")
	d := driver(t)
	for _, pixel := range sensors {
		path, f, pixels := recorded(t, d, pixel, 64, 48)
		dng := filepath.Join(exported(t, Config{Files: []string{path}, Driver: d}, "dng"), "frame-00000104.dng")
		out := output(t, dcraw, "-D", "-4", "-c", dng)
		output(t, unprocessed, "-q", dng)
		if !bytes.Equal(out, content(t, dng+".pgm")) {
			t.Errorf("%s: dcraw and libraw read different samples", pixel)
		}
		if head := fmt.Sprintf("P5\n%d %d\n65535\n", f.Width, f.Height); !bytes.HasPrefix(out, []byte(head)) {
			t.Fatalf("%s: %q", pixel, out[:20])
		}
		out = out[len(out)-2*f.Width*f.Height:]
		s, _ := pixel.Samples()
		for i, v := range values(f, s, pixels[3]) {
			if got := binary.BigEndian.Uint16(out[2*i:]); got != v {
				t.Fatalf("%s: sample %d is %#x, should be %#x", pixel, i, got, v)
			}
		}
		said := string(output(t, identify, "-v", dng))
		filters := "Filter pattern: " + strings.Repeat([...]string{"RGGB", "GRBG", "GBRG", "BGGR", ""}[s.Mosaic], 4)
		if !strings.Contains(said, "DNG Version: 1.4.0.0") || s.Mosaic != pipeline.Mono && !strings.Contains(said, filters) {
			t.Errorf("%s:\n%s", pixel, said)
		}
	}
}

// TestDNGHasTheShot records a grey wall as a sensor sees it that needs a white balance and has a black level of its own
// in each channel. dcraw must develop a neutral grey of the right lightness from black level and white balance as shot,
// and dcraw and libraw must read the exposure time.
func TestDNGHasTheShot(t *testing.T) {
	dcraw, identify := need(t, "dcraw", "dcraw"), need(t, "raw-identify", "libraw-bin")
	d := driver(t)
	shot := record.Settings{Exposure: 4 * time.Millisecond, Gain: 2, BlackLevels: [4]int{60, 64, 68, 72}, WhiteBalance: [3]float64{1.75, 1, 1.25}}
	const light = 400 // of green, above black, of 1023
	for pixel, channels := range map[pipeline.PixelFormat][4]int{
		pipeline.RGGB10: {red, greenRed, greenBlue, blue}, pipeline.GRBG10: {greenRed, red, blue, greenBlue},
		pipeline.GBRG10: {greenBlue, blue, red, greenRed}, pipeline.BGGR10: {blue, greenBlue, greenRed, red},
	} {
		const width, height = 64, 48
		wall := func(b []byte) {
			for i := range width * height {
				c := channels[i/width%2*2+i%2]
				gain := map[int]float64{red: 1.75, greenRed: 1, greenBlue: 1, blue: 1.25}[c]
				binary.LittleEndian.PutUint16(b[2*i:], uint16(float64(shot.BlackLevels[c])+math.Round(light/gain)))
			}
		}
		path, _, _ := recordedAs(t, d, pixel, width, height, func() (record.Settings, bool) { return shot, true }, wall)
		dng := filepath.Join(exported(t, Config{Files: []string{path}, Driver: d}, "dng"), "frame-00000104.dng")
		for program, said := range map[string]string{dcraw: string(output(t, dcraw, "-i", "-v", dng)), identify: string(output(t, identify, "-v", dng))} {
			if !regexp.MustCompile(`Shutter: +1/250`).MatchString(said) {
				t.Errorf("%s: %s does not say 1/250 s:\n%s", pixel, program, said)
			}
		}
		out := output(t, dcraw, "-w", "-o", "0", "-4", "-W", "-c", dng) // linear, in the sensor's colours, neither brightened nor converted
		at := out[len(out)-6*width*height+6*(width*height/2+width/2):]
		want := light * 65535 / (1023 - 66)
		for c := range 3 {
			if got := int(binary.BigEndian.Uint16(at[2*c:])); got < want*98/100 || got > want*102/100 {
				t.Errorf("%s: colour %d of the wall is %d, want %d", pixel, c, got, want)
			}
		}
	}
}

// TestDNGIsTurned checks that dcraw and libraw show the samples in each orientation.
func TestDNGIsTurned(t *testing.T) {
	dcraw, identify := need(t, "dcraw", "dcraw"), need(t, "raw-identify", "libraw-bin")
	d := driver(t)
	const width, height = 64, 48
	for orientation, turn := range []struct{ transpose, reverseX, reverseY bool }{ // TIFF 6.0 §8; 0 and 9 are none
		{},
		{},
		{false, true, false},
		{false, true, true},
		{false, false, true},
		{true, false, false},
		{true, false, true},
		{true, true, true},
		{true, true, false},
		{},
	} {
		shot := func() (record.Settings, bool) {
			return record.Settings{Exposure: 1, Gain: 1, Orientation: orientation}, true
		}
		path, f, pixels := recordedAs(t, d, pipeline.Mono12, width, height, shot, nil)
		dng := filepath.Join(exported(t, Config{Files: []string{path}, Driver: d}, "dng"), "frame-00000104.dng")
		w, h := width, height
		if turn.transpose {
			w, h = h, w
		}
		out := output(t, dcraw, "-D", "-4", "-c", dng)
		if head := fmt.Sprintf("P5\n%d %d\n65535\n", w, h); !bytes.HasPrefix(out, []byte(head)) {
			t.Fatalf("%d: %q, want %q", orientation, out[:20], head)
		}
		out = out[len(out)-2*width*height:]
		s, _ := f.Pixel.Samples()
		samples := values(f, s, pixels[3])
		for y := range h {
			for x := range w {
				fromX, fromY := x, y
				if turn.transpose {
					fromX, fromY = y, x
				}
				if turn.reverseX {
					fromX = width - 1 - fromX
				}
				if turn.reverseY {
					fromY = height - 1 - fromY
				}
				if got, want := binary.BigEndian.Uint16(out[2*(y*w+x):]), samples[fromY*width+fromX]; got != want {
					t.Fatalf("%d: sample (%d, %d) is %#x, want %#x", orientation, x, y, got, want)
				}
			}
		}
		said := output(t, identify, "-v", dng)
		if size := fmt.Sprintf(`Output size: +%d x %d\n`, w, h); !regexp.MustCompile(size).Match(said) {
			t.Errorf("%d: libraw does not say %s:\n%s", orientation, size, said)
		}
	}
}

// TestMKVHasThePictures reads the pictures with ffmpeg, and compares them bit by bit.
func TestMKVHasThePictures(t *testing.T) {
	ffmpeg := need(t, "ffmpeg", "ffmpeg")
	d := driver(t)
	for _, pixel := range append(sensors, pipeline.UYVY, pipeline.I420, pipeline.RGB24) {
		path, f, pixels := recorded(t, d, pixel, 64, 48)
		out := exported(t, Config{Files: []string{path}, Driver: d}, "mkv")
		in, _ := ffmpegPixels(f)
		got := output(t, ffmpeg, "-loglevel", "error", "-i", out, "-f", "rawvideo", "-pix_fmt", in, "-")
		var want []byte
		for _, p := range pixels {
			if s, ok := pixel.Samples(); ok && s.Bits > 8 {
				for _, v := range values(f, s, p) {
					want = binary.LittleEndian.AppendUint16(want, v)
				}
				continue
			}
			want = append(want, p...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d", pixel, len(got), len(want))
		}
	}
	t.Setenv("PATH", "")
	path, _, _ := recorded(t, d, pipeline.UYVY, 64, 48)
	_, err := Run(t.Context(), Config{Files: []string{path}, Driver: d, Format: "mkv", Out: filepath.Join(t.TempDir(), "x.mkv")}, nil)
	if !errors.Is(err, ErrFFmpeg) || !strings.Contains(err.Error(), "apt-get install ffmpeg") {
		t.Error(err)
	}
}
