// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// cameraFiles returns JPEG files of 96x64 pixels as cameras deliver them, by name. 420 and 420-restarts are by FFmpeg's
// encoder with -huffman default, with one and four slices, and 422 by GStreamer's jpegenc.
func cameraFiles(t testing.TB) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, name := range []string{"420", "420-restarts", "422"} {
		b, err := os.ReadFile(filepath.Join("testdata", name+".jpg"))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	sos := bytes.Index(files["422"], []byte{0xff, markSOS})
	files["422, restarts of more MCUs than there are"] = slices.Insert(slices.Clone(files["422"]), sos, 0xff, markDRI, 0, 4, 4, 0)
	for name, b := range maps.Clone(files) {
		files[name+", without Huffman tables"] = withoutSegment(b, markDHT)
		files[name+", padded"] = slices.Concat(b[:2], []byte{0xff, 0xff}, b[2:len(b)-2], []byte{0xff, 0xff}, b[len(b)-2:], make([]byte, 100))
	}
	return files
}

// withoutSegment returns a file without its segments with a marker.
func withoutSegment(b []byte, mark byte) []byte {
	b = slices.Clone(b)
	for i := 2; b[i+1] != markSOS; {
		n := 2 + int(be.Uint16(b[i+2:]))
		if b[i+1] == mark {
			b = slices.Delete(b, i, i+n)
		} else {
			i += n
		}
	}
	return b
}

func mjpegFrame(t testing.TB, file []byte) *pipeline.Frame {
	t.Helper()
	f := rtptest.Format(t, pipeline.MJPEG, 96, 64, 30)
	return &pipeline.Frame{Format: f, Bytes: append(make([]byte, 0, f.Size()), file...), Sequence: 1}
}

// decoded returns the picture of a file.
func decoded(t testing.TB, file []byte) *image.YCbCr {
	t.Helper()
	img, err := jpeg.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return img.(*image.YCbCr)
}

// TestCamerasFilesArePassedOn sends the files of cameras unchanged, without a copy: GStreamer's depayloader makes the same
// pictures of them, as does the train.
func TestCamerasFilesArePassedOn(t *testing.T) {
	if _, err := exec.LookPath("gst-launch-1.0"); err != nil {
		t.Fatalf("gst-launch-1.0 is missing: apt-get install %s", rtptest.GStreamer)
	}
	want := map[string]*image.YCbCr{}
	for name, file := range cameraFiles(t) {
		if len(name) <= len("420-restarts") {
			want[name[:3]] = decoded(t, file)
		}
	}
	start := testStart()
	var wire bytes.Buffer
	var pictures []*image.YCbCr
	for name, file := range cameraFiles(t) {
		f := mjpegFrame(t, file)
		p := testPacking(t, Stream{Payload: JPEG, MTU: 600, Start: start, Checksum: true}, f.Format)
		f.Times.Captured = time.Unix(int64(len(pictures)), 0)
		for _, packet := range packets(t, p, f) {
			wire.Write([]byte{byte(len(packet) >> 8), byte(len(packet))})
			wire.Write(packet)
			start.Sequence++
		}
		if scan := p.train.payload; &scan[0] != &f.Bytes[bytes.Index(f.Bytes, scan[:20])] {
			t.Errorf("%s: the scan was copied", name)
		}
		picture, _ := p.train.Picture()
		if samePicture(decoded(t, picture), want[name[:3]]) != nil {
			t.Errorf("%s: the train has another picture", name)
		}
		pictures = append(pictures, want[name[:3]])
	}
	in, out := filepath.Join(t.TempDir(), "packets"), t.TempDir()
	if err := os.WriteFile(in, wire.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command("gst-launch-1.0", "-q", "filesrc", "location="+in, "!", "application/x-rtp-stream,media=video,clock-rate=90000,encoding-name=JPEG,payload=26",
		"!", "rtpstreamdepay", "!", "rtpjpegdepay", "!", "multifilesink", "location="+out+"/%d.jpg").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	for i, want := range pictures {
		b, err := os.ReadFile(fmt.Sprintf("%s/%d.jpg", out, i))
		if err != nil {
			t.Fatal(err)
		}
		if err := samePicture(decoded(t, b), want); err != nil {
			t.Errorf("GStreamer's file %d: %v", i, err)
		}
	}
}

func samePicture(a, b *image.YCbCr) error {
	if a.SubsampleRatio != b.SubsampleRatio || a.Rect != b.Rect || !slices.Equal(a.Y, b.Y) || !slices.Equal(a.Cb, b.Cb) || !slices.Equal(a.Cr, b.Cr) {
		return fmt.Errorf("%v of %v, not %v of %v, or other pixels", a.SubsampleRatio, a.Rect, b.SubsampleRatio, b.Rect)
	}
	return nil
}
