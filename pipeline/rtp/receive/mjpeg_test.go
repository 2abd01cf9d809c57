// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"bytes"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestCamerasFiles receives the files of cameras: the pictures are theirs, with 4:2:2 and 4:2:0, with and without restart
// markers.
func TestCamerasFiles(t *testing.T) {
	names, err := filepath.Glob("../testdata/*.jpg")
	if err != nil || len(names) < 3 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f := rtptest.Format(t, pipeline.MJPEG, 96, 64, 30)
		x := newFeedOf(t, rtp.JPEG, f, 0)
		for n := range uint64(2) {
			x.frames = append(x.frames, &pipeline.Frame{Format: f, Sequence: n, Bytes: slices.Clone(file)})
			x.send(int(n), nil)
		}
		if st := x.s.snapshot(); st.Frames != 2 || st.Matched != 2 || st.Malformed != 0 || len(x.got) != 2 {
			t.Fatalf("%s: %+v", name, st)
		}
		got, want := picture(t, x.got[1]), picture(t, file)
		if got.SubsampleRatio != want.SubsampleRatio || !slices.Equal(got.Y, want.Y) || !slices.Equal(got.Cb, want.Cb) || !slices.Equal(got.Cr, want.Cr) {
			t.Errorf("%s: another picture", name)
		}
	}
}

func picture(t *testing.T, file []byte) *image.YCbCr {
	t.Helper()
	img, err := jpeg.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return img.(*image.YCbCr)
}
