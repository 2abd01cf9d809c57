// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

func TestParseY4M(t *testing.T) {
	small := func(pixel pipeline.PixelFormat, stride int, color pipeline.Colorimetry, rate int) pipeline.Format {
		return pipeline.Format{Pixel: pixel, Width: 2, Height: 2, Stride: stride, Color: color, Rate: pipeline.Rate{Num: rate, Den: 1}}
	}
	for name, c := range map[string]struct {
		file   string
		format pipeline.Format
		frames []int64
	}{
		"420": {
			"YUV4MPEG2 W4 H2 F30000:1001 Ip A1:1 C420mpeg2 XYSCSS=420MPEG2\nFRAME\n123456789012FRAME Xa\n123456789012",
			pipeline.Format{
				Pixel: pipeline.I420, Width: 4, Height: 2, Stride: 4, Rate: pipeline.Rate{Num: 30000, Den: 1001},
				Color: pipeline.BT709Limited,
			},
			[]int64{68, 89},
		},
		"no C, unknown rate": {
			"YUV4MPEG2 W2 H2 F0:0 I?\nFRAME\n123456",
			small(pipeline.I420, 2, pipeline.BT709Limited, 30),
			[]int64{30},
		},
		"JPEG siting, as ffmpeg writes it": {
			"YUV4MPEG2 W2 H2 F25:1 Ip A0:0 C420jpeg XYSCSS=420JPEG\nFRAME\n123456",
			small(pipeline.I420, 2, pipeline.BT709Limited, 25),
			[]int64{60},
		},
		"JPEG siting, full": {
			"YUV4MPEG2 C420jpeg W2 H2 F25:1 XCOLORRANGE=FULL \nFRAME\n123456",
			small(pipeline.I420, 2, pipeline.BT601Full, 25),
			[]int64{55},
		},
		"PAL DV siting": {
			"YUV4MPEG2 C420paldv W2 H2 F25:1\nFRAME\n123456",
			small(pipeline.I420, 2, pipeline.BT709Limited, 25),
			[]int64{38},
		},
		"grey": {
			"YUV4MPEG2 W2 H2 F25:1 Cmono\nFRAME\n1234",
			small(pipeline.Grey, 2, pipeline.BT709Limited, 25),
			[]int64{34},
		},
		"422 of one line": {
			"YUV4MPEG2 H1 W2 C422\nFRAME\n1234", pipeline.Format{}, nil,
		},
		"422": {
			"YUV4MPEG2 H2 W2 C422 XCOLORRANGE=FULL\nFRAME\n12345678",
			small(pipeline.UYVY, 4, pipeline.BT601Full, 30),
			[]int64{44},
		},
	} {
		y, err := parseY4M(strings.NewReader(c.file), int64(len(c.file)))
		if c.frames == nil {
			if !errors.Is(err, ErrY4M) || !errors.Is(err, pipeline.ErrFormat) {
				t.Errorf("%s: error %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if y.format != c.format || len(y.frames) != len(c.frames) || y.planar != (c.format.Pixel == pipeline.UYVY) {
			t.Errorf("%s: %+v, want %s", name, y, c.format)
			continue
		}
		for i := range c.frames {
			if y.frames[i] != c.frames[i] {
				t.Errorf("%s: frames at %v, want %v", name, y.frames, c.frames)
			}
		}
	}
}

func TestParseY4MRefuses(t *testing.T) {
	for file, want := range map[string]string{
		"":                                          "byte 0: no newline within 0 bytes",
		"YUV4MPEG W2 H2\n":                          `byte 0: "YUV4MPEG W2 H2" instead of "YUV4MPEG2"`,
		"YUV4MPEG2W2 H2\n":                          "byte 0",
		"YUV4MPEG2 W2 H2":                           "no newline",
		"YUV4MPEG2 W2\n":                            "byte 12: the header gives no width (W) or no height (H)",
		"YUV4MPEG2 W0 H2\n":                         `byte 10: parameter "W0": must be a number from 1`,
		"YUV4MPEG2 W2 H-2\n":                        `byte 13: parameter "H-2"`,
		"YUV4MPEG2 W2 H99999999999\n":               `byte 13`,
		"YUV4MPEG2 W2 H2 W2\n":                      `byte 16: parameter "W2": is given twice`,
		"YUV4MPEG2 W2 H2 F30\n":                     `byte 16: parameter "F30": must be a rate like 30:1`,
		"YUV4MPEG2 W2 H2 F30:0\n":                   `byte 16`,
		"YUV4MPEG2 W2 H2 Ix\n":                      "must be p, t, b, m or ?",
		"YUV4MPEG2 W2 H2 C\n":                       "no such samples",
		"YUV4MPEG2 W2 H2 C420jpegs\n":               "no such samples",
		"YUV4MPEG2 W2 H2 Q\n":                       `byte 16: parameter "Q": unknown parameter`,
		"YUV4MPEG2 W3 H2\n":                         "4:2:0 needs an even width",
		"YUV4MPEG2 W2 H2\n":                         "byte 16: no frame follows",
		"YUV4MPEG2 W2 H2\nFRAME\n12345":             "byte 22: frame 0 needs 6 bytes, the file has 5 more",
		"YUV4MPEG2 W2 H2\nFRAMES\n123456":           `byte 16: "FRAMES" instead of "FRAME"`,
		"YUV4MPEG2 W2 H2\nFRAME\n123456FRAME":       "byte 28: no newline",
		"YUV4MPEG2 W2 H2\nFRAME\n123456\x00FRAME\n": "byte 28",
	} {
		_, err := parseY4M(strings.NewReader(file), int64(len(file)))
		if !errors.Is(err, ErrY4M) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", file, err, want)
		}
	}
	for file, want := range map[string]string{
		"YUV4MPEG2 W2 H2 It\n":              "deinterlace them with ffmpeg -vf yadif",
		"YUV4MPEG2 W2 H2 Im\n":              "interlaced",
		"YUV4MPEG2 W2 H2 C444\n":            "ffmpeg -pix_fmt yuv420p",
		"YUV4MPEG2 W2 H2 C444alpha\n":       "of 8 bits",
		"YUV4MPEG2 W2 H2 C411\n":            "of 8 bits",
		"YUV4MPEG2 W2 H2 C420p10\n":         "of 8 bits",
		"YUV4MPEG2 W2 H2 Cmono16\n":         "of 8 bits",
		"YUV4MPEG2 W2 H2\nFRAME It\n123456": "frame parameter",
	} {
		_, err := parseY4M(strings.NewReader(file), int64(len(file)))
		if !errors.Is(err, ErrY4MKind) || errors.Is(err, ErrY4M) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", file, err, want)
		}
	}
}

// TestReplayY4MFromFFmpeg plays a file written by ffmpeg, and compares it with ffmpeg's conversion of the same picture
// to our layout.
func TestReplayY4MFromFFmpeg(t *testing.T) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Fatal("this test needs ffmpeg: apt-get install ffmpeg")
	}
	for theirs, ours := range map[string]string{"yuv422p": "uyvy422", "yuv420p": "yuv420p"} {
		path := filepath.Join(t.TempDir(), "test.y4m")
		source := []string{"-v", "error", "-f", "lavfi", "-i", "testsrc2=size=66x34:rate=25:duration=0.2,format=" + theirs}
		if out, err := exec.Command(ffmpeg, append(source, path)...).CombinedOutput(); err != nil {
			t.Fatalf("ffmpeg: %v: %s", err, out)
		}
		want, err := exec.Command(ffmpeg, append(source, "-f", "rawvideo", "-pix_fmt", ours, "-")...).Output()
		if err != nil {
			t.Fatalf("ffmpeg: %v", err)
		}
		r := newReplay(t, ReplayConfig{Path: path, Slots: 1})
		if (r.Format().Rate != pipeline.Rate{Num: 25, Den: 1}) {
			t.Errorf("%s: rate %s", theirs, r.Format().Rate)
		}
		r.format.Rate = pipeline.Rate{} // no frame is skipped on a slow machine
		var got []byte
		if err := r.Run(t.Context(), func(f *pipeline.Frame) {
			got = append(got, f.Bytes...)
			f.Release()
		}); err != nil {
			t.Fatal(err)
		}
		if len(want) == 0 || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes differ from ffmpeg's %d", theirs, len(got), len(want))
		}
	}
}

// FuzzParseY4M checks that a file is refused with a reason, or that all its frames lie within it.
func FuzzParseY4M(f *testing.F) {
	for _, s := range []string{
		"YUV4MPEG2 W4 H2 F30000:1001 Ip A1:1 C420mpeg2 XYSCSS=420MPEG2\nFRAME\n123456789012FRAME Xa\n123456789012",
		"YUV4MPEG2 H2 W2 C422 XCOLORRANGE=FULL\nFRAME\n12345678",
		"YUV4MPEG2 W32767 H32767 C422\nFRAME\n",
		"YUV4MPEG2 \n", "FRAME\n", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		y, err := parseY4M(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			if !errors.Is(err, ErrY4M) && !errors.Is(err, ErrY4MKind) {
				t.Fatalf("refused without a reason: %v", err)
			}
			return
		}
		if err := y.format.Validate(); err != nil {
			t.Fatal(err)
		}
		end := int64(len(y4mMagic))
		for _, at := range y.frames {
			if at < end+int64(len(y4mFrame)) || at+int64(y.format.Size()) > int64(len(file)) {
				t.Fatalf("frame at %d of %d bytes", at, len(file))
			}
			end = at + int64(y.format.Size())
		}
		if y.planar {
			interleave(make([]byte, y.format.Size()), file[y.frames[0]:][:y.format.Size()])
		}
	})
}

// FuzzReplayRaw checks that a raw file of any length and geometry is refused with a one-line error, or that as many
// frames are played as it contains.
func FuzzReplayRaw(f *testing.F) {
	f.Add(make([]byte, 32), 4, 2, 8)
	f.Add(make([]byte, 33), 4, 2, 9)
	f.Add([]byte("YUV4MPEG2 W4 H2\n"), 2, 2, 4)
	f.Add([]byte{}, 0, -1, 1<<40)
	f.Fuzz(func(t *testing.T, file []byte, width, height, stride int) {
		memory := &replayMemory{}
		r, err := NewReplay(ReplayConfig{
			Path:   replayFile(t, file),
			Format: pipeline.Format{Pixel: pipeline.RGGB10, Width: width, Height: height, Stride: stride},
			Slots:  1, Allocator: memory,
		})
		if err != nil {
			if !errors.Is(err, ErrReplay) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("refused without a reason: %v", err)
			}
			return
		}
		n := 0
		if err := r.Run(t.Context(), func(f *pipeline.Frame) { n++; f.Release() }); err != nil || n != r.Frames() {
			t.Errorf("%d of %d frames: %v", n, r.Frames(), err)
		}
		if err := r.Close(); err != nil || memory.live != 0 {
			t.Errorf("Close: %v, %d slots live", err, memory.live)
		}
	})
}
