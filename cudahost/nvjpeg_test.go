// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"bytes"
	"errors"
	"image"
	"image/jpeg"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func nvjpegStandin(t *testing.T, defines ...string) []string {
	t.Helper()
	lib := filepath.Join(t.TempDir(), "libnvjpeg-standin.so")
	args := append([]string{"-shared", "-fPIC", "-Wall", "-o", lib, "testdata/nvjpeg.c"}, defines...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return []string{lib}
}

// picture420 returns a picture in a buffer of the back end, and its planes.
func picture420(t *testing.T, a Allocator, width, height, stride int) (Picture420, []byte) {
	t.Helper()
	b, err := a.AllocHost(stride*height*3/2, Mapped)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	at := b.DevicePointer()
	return Picture420{
		Planes:  [3]uintptr{at, at + uintptr(stride*height), at + uintptr(stride*height*5/4)},
		Strides: [3]int{stride, stride / 2, stride / 2}, Width: width, Height: height,
	}, b.Bytes()
}

func TestCallsOfNVJPEG(t *testing.T) {
	c := openStandin(t)
	e, err := c.Device.newNVJPEG(90, nvjpegStandin(t))
	if err != nil {
		t.Fatal(err)
	}
	p, b := picture420(t, c, 16, 8, 32)
	b[0], b[32*8], b[32*10] = 1, 2, 4
	file, err := e.Encode(make([]byte, 1, 9), p)
	if err != nil || !bytes.Equal(file, append([]byte{0}, bytes.Repeat([]byte{7}, 8)...)) {
		t.Errorf("%v %v", file, err)
	}
	if file, err := e.Encode(make([]byte, 2, 9), p); !errors.Is(err, ErrJPEG) || len(file) != 2 {
		t.Errorf("without room: %v %v", file, err)
	}
	p.Strides[0] = 8
	if _, err := e.Encode(make([]byte, 0, 9), p); !errors.Is(err, ErrJPEG) || !strings.Contains(err.Error(), "nvjpegEncodeYUV: invalid parameter (2)") {
		t.Errorf("a stride below the width: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for reason, names := range map[string][]string{"not installed": {"libno-such-nvjpeg.so"}, "another library": nvjpegStandin(t, "-DANOTHER")} {
		if _, err := c.Device.newNVJPEG(90, names); !errors.Is(err, ErrNoCUDA) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", reason, err)
		}
	}
	if _, err := c.Device.newNVJPEG(0, nvjpegStandin(t)); !errors.Is(err, ErrJPEG) || !strings.Contains(err.Error(), "SetQuality") {
		t.Errorf("quality 0: %v", err)
	}
}

// TestGPUJPEG decodes the files with Go's decoder and compares them with the picture.
func TestGPUJPEG(t *testing.T) {
	c := gpu(t)
	e, err := c.Device.NewNVJPEG(90)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range [][2]int{{960, 540}, {64, 48}, {2040, 1530}, {34, 18}} {
		w, h := size[0], size[1]
		p, b := picture420(t, c, w, h, w)
		for y := range h {
			for x := range w {
				b[y*w+x] = byte(128 + 60*math.Sin(float64(x)/23) + 50*math.Cos(float64(y)/17))
				if x%2+y%2 == 0 {
					b[w*h+y/2*w/2+x/2] = byte(128 + 50*math.Sin(float64(x+y)/41))
					b[w*h*5/4+y/2*w/2+x/2] = byte(128 + 50*math.Cos(float64(x-y)/37))
				}
			}
		}
		file, err := e.Encode(make([]byte, 0, 4*w*h), p)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := jpeg.Decode(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		m, ok := decoded.(*image.YCbCr)
		if !ok || m.SubsampleRatio != image.YCbCrSubsampleRatio420 || m.Rect.Dx() != w || m.Rect.Dy() != h {
			t.Fatalf("%dx%d: %T %v", w, h, decoded, decoded.Bounds())
		}
		for i, plane := range [][]byte{m.Y, m.Cb, m.Cr} {
			pw, ph, stride, from := w, h, m.YStride, b
			if i > 0 {
				pw, ph, stride, from = w/2, h/2, m.CStride, b[w*h*(3+i)/4:]
			}
			var sum float64
			for y := range ph {
				for x := range pw {
					d := float64(plane[y*stride+x]) - float64(from[y*pw+x])
					sum += d * d
				}
			}
			db := 10 * math.Log10(255*255*float64(pw*ph)/sum)
			t.Logf("%dx%d plane %d: %.1f dB, file of %d bytes", w, h, i, db, len(file))
			if db < 35 {
				t.Errorf("%dx%d plane %d: %.1f dB", w, h, i, db)
			}
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
