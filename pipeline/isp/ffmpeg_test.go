package isp

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os/exec"
	"testing"

	"tegracast/pipeline"
)

// TestAgainstFFmpeg compares the real capture, without white balance and gamma, with what ffmpeg's bilinear demosaic
// and colour conversion make of it. ffmpeg rounds R'G'B' to 8 bits by cutting, and treats the outermost pixels
// differently, so the bound is a PSNR: 50 dB is a root mean square of 0.8 codes.
func TestAgainstFFmpeg(t *testing.T) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Fatal("this test needs ffmpeg: apt-get install ffmpeg")
	}
	s := newStage(t, Config{Gamma: 1})
	in, outs := planned(t, s, testchart(t), full(pipeline.UYVY))
	if err := s.Process(context.Background(), in, outs); err != nil {
		t.Fatal(err)
	}
	wide := make([]byte, len(in.Bytes)) // ffmpeg's Bayer samples have 16 bits
	for i := 0; i < len(wide); i += 2 {
		s := uint32(binary.LittleEndian.Uint16(in.Bytes[i:]))
		binary.LittleEndian.PutUint16(wide[i:], uint16(s*65535/1023))
	}
	cmd := exec.Command(ffmpeg, "-v", "error", "-f", "rawvideo", "-pix_fmt", "bayer_rggb16le", "-s", "1920x1080", "-i", "-",
		"-vf", "scale,format=rgb24,scale=out_color_matrix=bt709:out_range=tv:out_h_chr_pos=0"+
			":flags=bilinear+accurate_rnd+full_chroma_inp,format=uyvy422", "-f", "rawvideo", "-")
	cmd.Stdin = bytes.NewReader(wide)
	theirs, err := cmd.Output()
	if err != nil {
		t.Fatalf("ffmpeg: %v", err)
	}
	if len(theirs) != len(outs[0].Bytes) {
		t.Fatalf("ffmpeg made %d bytes, want %d", len(theirs), len(outs[0].Bytes))
	}
	for i, name := range []string{"Cb", "Y", "Cr", "Y"} {
		if db := psnr(outs[0].Bytes, theirs, i, 4); db < 50 {
			t.Errorf("%s: PSNR %.1f dB against ffmpeg", name, db)
		} else {
			t.Logf("%s: PSNR %.1f dB", name, db)
		}
	}
}

func psnr(a, b []byte, from, step int) float64 {
	var sum, n float64
	for i := from; i < len(a); i += step {
		d := float64(a[i]) - float64(b[i])
		sum, n = sum+d*d, n+1
	}
	return 10 * math.Log10(255*255*n/sum)
}
