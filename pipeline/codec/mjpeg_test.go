// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// decoders returns the decoder with libjpeg-turbo and the one with image/jpeg.
func decoders(t testing.TB) map[string]*MJPEG {
	t.Helper()
	turbo, slow := NewMJPEG()
	if slow != nil {
		t.Fatal(slow)
	}
	t.Cleanup(func() {
		if err := turbo.Close(); err != nil {
			t.Error(err)
		}
	})
	return map[string]*MJPEG{"libjpeg-turbo": turbo, "image/jpeg": {}}
}

func ofCameras(t testing.TB) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	names, err := filepath.Glob("../rtp/testdata/*.jpg")
	if err != nil || len(names) < 3 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if files[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	grey := image.NewGray(image.Rect(0, 0, 96, 64))
	for i := range grey.Pix {
		grey.Pix[i] = byte(i / 96 * 4)
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, grey, nil); err != nil {
		t.Fatal(err)
	}
	files["grey"] = b.Bytes()
	return files
}

// TestMJPEG decodes the files of cameras, also without Huffman tables, with both decoders, which agree within the error
// of their transforms. The memory of the picture before is used again.
func TestMJPEG(t *testing.T) {
	for name, d := range decoders(t) {
		var again, fresh image.YCbCr
		for file, b := range ofCameras(t) {
			for _, b := range [][]byte{b, bytes.Replace(b, []byte{0xff, 0xc4}, []byte{0xff, 0xfe}, -1), append(slices.Clone(b), 0, 0, 0)} {
				fresh = image.YCbCr{}
				if err := d.Decode(&fresh, b, 96, 64); err != nil {
					t.Fatalf("%s: %s: %v", name, file, err)
				}
				if err := d.Decode(&again, b, 96, 64); err != nil || !slices.Equal(again.Y, fresh.Y) || !slices.Equal(again.Cr, fresh.Cr) {
					t.Fatalf("%s: %s: another picture in used memory: %v", name, file, err)
				}
				extra := slices.Insert(slices.Clone(ofCameras(t)[file]), len(ofCameras(t)[file])-2, 0x55, 0x55, 0x55)
				if err := d.Decode(&again, extra, 96, 64); name == "libjpeg-turbo" && (err != nil || !slices.Equal(again.Y, fresh.Y)) {
					t.Fatalf("%s: %s with bytes before its end: %v", name, file, err)
				}
				decoded, err := jpeg.Decode(bytes.NewReader(ofCameras(t)[file]))
				if err != nil {
					t.Fatal(err)
				}
				for y := range 64 {
					for x := range 96 {
						got, want := fresh.YCbCrAt(x, y), color.YCbCrModel.Convert(decoded.At(x, y)).(color.YCbCr)
						if diff(got.Y, want.Y) > 3 || diff(got.Cb, want.Cb) > 3 || diff(got.Cr, want.Cr) > 3 {
							t.Fatalf("%s: %s: pixel %d,%d is %v, not %v", name, file, x, y, got, want)
						}
					}
				}
			}
		}
	}
}

func diff(a, b byte) int { return max(int(a)-int(b), int(b)-int(a)) }

// sampled returns a JPEG file of any size and subsampling (TJSAMP_*).
func sampled(t testing.TB, kind, width, height int) []byte {
	t.Helper()
	e := turbo(t, 100)
	var planes [3][]byte
	var at [3]uintptr
	for i := range planes {
		planes[i] = make([]byte, (width+31)*(height+31))
		for k := range planes[i] { // steps that survive the transform
			planes[i][k] = byte(60 + 40*i + k%(width+31)*3 + k/(width+31)*2)
		}
		at[i] = uintptr(unsafe.Pointer(&planes[i][0]))
	}
	room, _, _ := purego.SyscallN(e.library.size, uintptr(width), uintptr(height), uintptr(kind))
	file, strides := make([]byte, int(room)), [3]int32{int32(width + 31), int32(width + 31), int32(width + 31)}
	out, size := uintptr(unsafe.Pointer(&file[0])), uint64(len(file))
	result, _, _ := purego.SyscallN(e.library.compress, e.handle, uintptr(unsafe.Pointer(&at)), uintptr(width), uintptr(unsafe.Pointer(&strides)),
		uintptr(height), uintptr(kind), uintptr(unsafe.Pointer(&out)), uintptr(unsafe.Pointer(&size)), 100, turboNoRealloc)
	runtime.KeepAlive(&planes)
	if int32(result) != 0 {
		t.Fatal(e.err())
	}
	return file[:size]
}

// TestMJPEGSizes decodes files whose sizes are no multiples of their chroma samples': nothing is written beyond the memory of
// the planes, and both decoders agree.
func TestMJPEGSizes(t *testing.T) {
	all := decoders(t)
	for kind, name := range []string{"4:4:4", "4:2:2", "4:2:0", "grey", "4:4:0", "4:1:1"} {
		for _, size := range [][2]int{{1, 1}, {3, 5}, {17, 9}, {17, 33}, {18, 34}, {64, 48}} {
			width, height := size[0], size[1]
			file := sampled(t, kind, width, height)
			var got, want image.YCbCr
			if err := errors.Join(all["libjpeg-turbo"].Decode(&got, file, width, height), all["image/jpeg"].Decode(&want, file, width, height)); err != nil {
				t.Fatalf("%s %v: %v", name, size, err)
			}
			if got.Rect != want.Rect || got.SubsampleRatio != want.SubsampleRatio {
				t.Fatalf("%s %v: %v %v, %v %v", name, size, got.Rect, got.SubsampleRatio, want.Rect, want.SubsampleRatio)
			}
			for y := range height {
				for x := range width {
					a, b := got.YCbCrAt(x, y), want.YCbCrAt(x, y)
					if diff(a.Y, b.Y) > 3 || diff(a.Cb, b.Cb) > 3 || diff(a.Cr, b.Cr) > 3 {
						t.Fatalf("%s %v: pixel %d,%d is %v, not %v", name, size, x, y, a, b)
					}
				}
			}
			memory := &got.Y[0]
			if err := all["libjpeg-turbo"].Decode(&got, file, width, height); err != nil || memory != &got.Y[0] {
				t.Errorf("%s %v: other memory for the same size, %v", name, size, err)
			}
		}
	}
}

// edited returns a file with other bytes for height and width.
func edited(b []byte, size ...byte) []byte {
	at := bytes.Index(b, []byte{0xff, 0xc0}) + 5
	return slices.Replace(slices.Clone(b), at, at+len(size), size...)
}

// TestMJPEGRefuses decodes what is no such file: each is an error.
func TestMJPEGRefuses(t *testing.T) {
	for name, d := range decoders(t) {
		b := ofCameras(t)["420.jpg"]
		var img image.YCbCr
		for what, file := range map[string][]byte{
			"nothing": {}, "noise": bytes.Repeat([]byte{0x5a}, 1000), "half": b[:len(b)/2], "no scan": b[:bytes.Index(b, []byte{0xff, 0xda})],
			"other size": edited(b, 0, 32), "huge": edited(b, 0xff, 0xff, 0xff, 0xff),
		} {
			if err := d.Decode(&img, file, 96, 64); !errors.Is(err, ErrDecode) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
}

func FuzzMJPEG(f *testing.F) {
	for _, b := range ofCameras(f) {
		f.Add(b)
	}
	all := decoders(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, d := range all {
			var img image.YCbCr
			if err := d.Decode(&img, b, 96, 64); err != nil && !errors.Is(err, ErrDecode) {
				t.Fatalf("%s: %v", name, err)
			} else if err == nil && (img.Rect.Dx() != 96 || img.Rect.Dy() != 64) {
				t.Fatalf("%s: %v", name, img.Rect)
			}
		}
	})
}
