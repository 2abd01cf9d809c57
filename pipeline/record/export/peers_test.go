// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
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
