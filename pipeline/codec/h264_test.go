// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func testEncoder(t testing.TB, f pipeline.Format, bitrate int) *H264 {
	t.Helper()
	h, err := NewH264(f, bitrate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// decode decodes a stream with ffmpeg, and returns luma and chroma of each picture.
func decode(t testing.TB, stream []byte, f pipeline.Format) [][]byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stream.h264")
	if err := os.WriteFile(path, stream, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ffmpeg", "-hide_banner", "-loglevel", "warning", "-xerror", "-i", path, "-fps_mode", "passthrough", "-f", "rawvideo", "-")
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil || log.Len() > 0 {
		t.Fatalf("%s: %v\n%s", cmd, err, &log)
	}
	size := f.Width * f.Height * 3 / 2
	if len(out)%size != 0 {
		t.Fatalf("%d bytes decoded, a picture has %d", len(out), size)
	}
	var list [][]byte
	for ; len(out) > 0; out = out[size:] {
		list = append(list, out[:size])
	}
	return list
}

// sizes of pictures for TestH264. Some are not a whole number of blocks, and the last is encoded in several slices.
var sizes = [][2]int{{16, 16}, {322, 182}, {480, 270}, {1280, 722}}

// TestH264 decodes openh264's output with ffmpeg.
func TestH264(t *testing.T) {
	l, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range sizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			encodes(t, l, size[0], size[1])
		})
	}
}

// encodes encodes pictures, also after a change of the bit rate. Every picture must come back from ffmpeg, in order and
// similar to the original.
func encodes(t *testing.T, l *library, width, height int) {
	t.Helper()
	const frames, keyAt = 14, 8
	f := rtptest.Format(t, pipeline.I420, width, height, 30)
	bitrate := width*height*30/4 + 200_000
	h, err := l.newH264(f, bitrate)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	dst := make([]byte, 0, 2*f.Size()+4096)
	var stream []byte
	var fill [5]*pipeline.Frame
	for n := range fill {
		fill[n] = rtptest.Frame(f, n)
	}
	for n := range frames {
		if err := h.SetBitrate(bitrate + n%2*1000); err != nil {
			t.Fatal(err)
		}
		unit, err := h.Encode(dst, fill[n%5], n == 0 || n == keyAt)
		if err != nil {
			t.Fatal(err)
		}
		sps, pps := h.ParameterSets()
		sets := fmt.Sprintf("\x00\x00\x00\x01%s\x00\x00\x00\x01%s\x00\x00\x00\x01", sps, pps)
		if key := bytes.HasPrefix(unit, []byte(sets)); key != (n == 0 || n == keyAt) || key && unit[len(sets)]&31 != 5 || !key && unit[4]&31 != 1 {
			t.Errorf("unit %d begins with % x", n, unit[:8])
		}
		stream = append(stream, unit...)
	}
	got := decode(t, stream, f)
	if len(got) != frames {
		t.Fatalf("%d of %d pictures", len(got), frames)
	}
	for n, picture := range got {
		if db := rtptest.PSNR(picture, fill[n%5].Bytes); db < 30 {
			t.Errorf("picture %d: %.1f dB", n, db)
		}
	}
}

// TestH264Colors checks with ffprobe what the stream says about its colours.
func TestH264Colors(t *testing.T) {
	for color, want := range map[pipeline.Colorimetry]string{
		pipeline.BT709Limited: "color_range=tv color_space=bt709 color_transfer=bt709 color_primaries=bt709",
		pipeline.BT709Full:    "color_range=pc color_space=bt709 color_transfer=bt709 color_primaries=bt709",
		pipeline.BT601Full:    "color_range=pc color_space=smpte170m color_transfer=bt709 color_primaries=bt709",
	} {
		f := rtptest.Format(t, pipeline.I420, 320, 180, 30)
		f.Color = color
		unit, err := testEncoder(t, f, 1e6).Encode(make([]byte, 0, f.Size()), rtptest.Frame(f, 0), true)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("ffprobe", "-loglevel", "error", "-f", "h264", "-show_entries",
			"stream=profile,width,height,refs,has_b_frames,color_range,color_space,color_transfer,color_primaries", "-of", "default=nw=1", "-")
		cmd.Stdin = bytes.NewReader(unit)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got := strings.Join(strings.Fields(string(out)), " ")
		if want := "profile=Constrained Baseline width=320 height=180 has_b_frames=0 " + want + " refs=1"; got != want {
			t.Errorf("%s: ffprobe says %s, not %s", color, got, want)
		}
	}
}

// TestH264Rate compares the size of a few seconds of pictures with the configured bit rate, at frame rates that
// openh264 supports and at others, and after changes of the bit rate.
func TestH264Rate(t *testing.T) {
	for _, rate := range []pipeline.Rate{{Num: 30, Den: 1}, {Num: 30000, Den: 1001}, {Num: 120, Den: 1}, {Num: 1, Den: 2}} {
		const bits, seconds = 33_000, 4 // bits: for each frame
		bitrate := bits * rate.Num / rate.Den
		f := rtptest.Format(t, pipeline.I420, 320, 180, 30)
		f.Rate = rate
		h := testEncoder(t, f, bitrate)
		dst, frames := make([]byte, 0, 2*f.Size()), max(seconds*rate.Num/rate.Den, 20)
		fill := [2]*pipeline.Frame{rtptest.Frame(f, 0), rtptest.Frame(f, 1)}
		for round, want := range []int{bitrate, bitrate / 3, bitrate} {
			if round > 0 {
				if err := h.SetBitrate(want); err != nil {
					t.Fatal(err)
				}
			}
			bytes := 0
			for n := range frames {
				unit, err := h.Encode(dst, fill[n%2], round == 0 && n == 0)
				if err != nil {
					t.Fatal(err)
				}
				bytes += len(unit)
			}
			got := float64(8*bytes) * float64(rate.Num) / float64(rate.Den) / float64(frames)
			t.Logf("%s/s: %.0f bit/s", rate, got)
			if got < 0.7*float64(want) || got > 1.3*float64(want) {
				t.Errorf("%s/s, round %d: %.0f bit/s, %d wanted", rate, round, got, want)
			}
		}
	}
}

func TestH264Refuses(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 320, 180, 30)
	for name, change := range map[string]func(*pipeline.Format){
		"pixels":    func(f *pipeline.Format) { f.Pixel = pipeline.NV12 },
		"rate":      func(f *pipeline.Format) { f.Rate = pipeline.Rate{} },
		"size":      func(f *pipeline.Format) { f.Width = 14 },
		"36864":     func(f *pipeline.Format) { f.Width, f.Height = 8192, 4320 },
		"memory is": func(f *pipeline.Format) { f.Memory = pipeline.MemoryDevice },
	} {
		bad := f
		change(&bad)
		if _, err := NewH264(bad, 1e6); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := testEncoder(t, f, 1e6)
	if _, err := h.Encode(make([]byte, 0, 100), rtptest.Frame(f, 0), true); !errors.Is(err, ErrEncode) {
		t.Errorf("no room: %v", err)
	}
	if _, err := h.Encode(nil, rtptest.Frame(rtptest.Format(t, pipeline.I420, 160, 90, 30), 0), true); !errors.Is(err, ErrFormat) {
		t.Errorf("another size: %v", err)
	}
}

// BenchmarkH264 measures the cost of a picture. rusage is the CPU time of all threads.
func BenchmarkH264(b *testing.B) {
	for _, size := range [][2]int{{960, 540}, {1920, 1080}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			f := rtptest.Format(b, pipeline.I420, size[0], size[1], 30)
			h := testEncoder(b, f, size[0]*size[1]*3)
			dst := make([]byte, 0, 2*f.Size())
			var fill [5]*pipeline.Frame
			for n := range fill {
				fill[n] = rtptest.Frame(f, n)
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if _, err := h.Encode(dst, fill[n%5], n%60 == 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
