// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os/exec"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// ffmpeg runs ffmpeg on one raw 1920x1080 picture.
func ffmpeg(t testing.TB, in []byte, from, filter, to string) []byte {
	t.Helper()
	path, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Fatal("this test needs ffmpeg: apt-get install ffmpeg")
	}
	cmd := exec.Command(path, "-v", "error", "-f", "rawvideo", "-pix_fmt", from, "-s", "1920x1080", "-i", "-",
		"-vf", filter, "-pix_fmt", to, "-f", "rawvideo", "-")
	cmd.Stdin = bytes.NewReader(in)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ffmpeg: %v: %s", err, errs.String())
	}
	return out
}

// wide converts 10-bit samples to 16-bit words, ffmpeg's format for Bayer samples.
func wide(in []byte) []byte {
	w := make([]byte, len(in))
	for i := 0; i < len(w); i += 2 {
		s := uint32(binary.LittleEndian.Uint16(in[i:]))
		binary.LittleEndian.PutUint16(w[i:], uint16(s*65535/1023))
	}
	return w
}

// process makes the wanted formats from the real capture.
func process(t testing.TB, c Config, want ...pipeline.Format) []*pipeline.Frame {
	t.Helper()
	s := newStage(t, c)
	in := testchart(t)
	if err := s.Plan(in.Format, want); err != nil {
		t.Fatal(err)
	}
	var outs []*pipeline.Frame
	for _, f := range want {
		outs = append(outs, frame(f))
	}
	if err := s.Process(context.Background(), in, outs); err != nil {
		t.Fatal(err)
	}
	return outs
}

// TestBilinearAgainstFFmpeg compares R'G'B' of the real capture without white balance and tone curve. ffmpeg truncates
// to 8 bits where the isp rounds, so its values are half a code lower on average, and it treats the outermost pixels
// differently. The root mean square of an even distribution from 0 to 1 is 0.58 codes, which is 52.9 dB.
func TestBilinearAgainstFFmpeg(t *testing.T) {
	outs := process(t, Config{Gamma: 1}, format(t, pipeline.RGB24, 1920, 1080))
	theirs := ffmpeg(t, wide(testchart(t).Bytes), "bayer_rggb16le", "format=rgb24", "rgb24")
	for i, name := range []string{"R", "G", "B"} {
		db := psnr(outs[0].Bytes, theirs, i, 3)
		t.Logf("%s: PSNR %.1f dB", name, db)
		if db < 50 {
			t.Errorf("%s: PSNR %.1f dB against ffmpeg, want 50", name, db)
		}
	}
}

// TestConversionsAgainstFFmpeg compares Y'CbCr with ffmpeg's conversion of the isp's own 8-bit R'G'B'. These are
// already rounded (0.29 codes), and the result is rounded on both sides: 0.29 each for luma, together about 0.5 codes
// or 54 dB; the bound is 52. Chroma, a mean of several pixels, is better; ffmpeg's luma loses a little because its
// coefficients have 15 bits. At 10 bits full range ffmpeg converts white to less than 1023, so its luma is compared
// with 51.
func TestConversionsAgainstFFmpeg(t *testing.T) {
	colors := map[pipeline.Colorimetry]string{
		pipeline.BT709Limited: "out_color_matrix=bt709:out_range=tv", pipeline.BT709Full: "out_color_matrix=bt709:out_range=pc",
		pipeline.BT601Limited: "out_color_matrix=bt601:out_range=tv", pipeline.BT601Full: "out_color_matrix=bt601:out_range=pc",
	}
	c := Config{Gains: Gains{R: 1.5, B: 1.1}}
	rgb := process(t, c, format(t, pipeline.RGB24, 1920, 1080))[0].Bytes
	for color, matrix := range colors {
		for _, p := range []struct {
			pixel pipeline.PixelFormat
			to    string
			flags string
		}{
			{pipeline.UYVY, "uyvy422", "out_h_chr_pos=0:flags=bilinear"},
			{pipeline.UYVP, "yuv422p10le", "out_h_chr_pos=0:flags=bilinear"},
			{pipeline.I420, "yuv420p", "out_h_chr_pos=128:out_v_chr_pos=128:flags=area"},
			{pipeline.NV12, "nv12", "out_h_chr_pos=128:out_v_chr_pos=128:flags=area"},
		} {
			t.Run(fmt.Sprint(color, " ", p.to), func(t *testing.T) {
				f := format(t, p.pixel, 1920, 1080)
				f.Color = color
				ours := process(t, c, f)[0].Bytes
				theirs := ffmpeg(t, rgb, "rgb24", "scale=in_range=pc:"+matrix+":"+p.flags+"+accurate_rnd+full_chroma_inp+full_chroma_int,format="+p.to, p.to)
				if p.pixel == pipeline.UYVP {
					ours, theirs = unpack10(ours), interleave10(theirs)
				}
				least := 52.0
				if p.pixel == pipeline.UYVP && isFull(color) {
					least = 51
				}
				checkPlanes(t, p.pixel, ours, theirs, least)
			})
		}
	}
}

func checkPlanes(t *testing.T, p pipeline.PixelFormat, ours, theirs []byte, least float64) {
	t.Helper()
	if len(ours) != len(theirs) {
		t.Fatalf("ffmpeg made %d bytes, want %d", len(theirs), len(ours))
	}
	y, cb, cr := psnr(ours, theirs, 1, 2), psnr(ours, theirs, 0, 4), psnr(ours, theirs, 2, 4)
	if p == pipeline.I420 || p == pipeline.NV12 {
		const luma, quarter = 1920 * 1080, 1920 * 1080 / 4
		y, cb, cr = psnr(ours[:luma], theirs[:luma], 0, 1), psnr(ours[luma:], theirs[luma:], 0, 2), psnr(ours[luma:], theirs[luma:], 1, 2)
		if p == pipeline.I420 {
			cb, cr = psnr(ours[luma:][:quarter], theirs[luma:][:quarter], 0, 1), psnr(ours[luma+quarter:], theirs[luma+quarter:], 0, 1)
		}
	}
	t.Logf("PSNR Y %.1f dB, Cb %.1f dB, Cr %.1f dB", y, cb, cr)
	if y < least || cb < least || cr < least {
		t.Errorf("PSNR Y %.1f dB, Cb %.1f dB, Cr %.1f dB against ffmpeg, want %v", y, cb, cr, least)
	}
}

// unpack10 converts pixel groups of 10 bits to 8 bits, rounded.
func unpack10(b []byte) []byte {
	var out []byte
	for ; len(b) >= 5; b = b[5:] {
		v := uint64(b[0])<<32 | uint64(binary.BigEndian.Uint32(b[1:]))
		for shift := 30; shift >= 0; shift -= 10 {
			out = append(out, byte(min((v>>shift&1023+2)>>2, 255)))
		}
	}
	return out
}

// interleave10 does the same for 4:2:2 planes of words.
func interleave10(b []byte) []byte {
	n := 1920 * 1080
	at := func(i int) byte { return byte(min((binary.LittleEndian.Uint16(b[2*i:])+2)>>2, 255)) }
	out := make([]byte, 0, 2*n)
	for i := range n / 2 {
		out = append(out, at(n+i), at(2*i), at(n+n/2+i), at(2*i+1))
	}
	return out
}

func psnr(a, b []byte, from, step int) float64 {
	var sum, n float64
	for i := from; i < len(a); i += step {
		d := float64(a[i]) - float64(b[i])
		sum, n = sum+d*d, n+1
	}
	return 10 * math.Log10(255*255*n/max(sum, 1e-9))
}
