// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	foxglove "github.com/foxglove/mcap/go/mcap"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// foreignImage is a kind of image that testdata/core/write.mjs writes, with the format in which it must be played. Its
// bytes are those of the file, in which groups of swapped bytes are turned around.
type foreignImage struct {
	encoding string
	step     int
	big      bool
	pixel    pipeline.PixelFormat
	swapped  int
}

func foreignImages() []foreignImage {
	return []foreignImage{
		{"bayer_rggb8", 64, false, pipeline.RGGB8, 1},
		{"bayer_grbg8", 80, false, pipeline.GRBG8, 1},
		{"bayer_gbrg8", 64, true, pipeline.GBRG8, 1}, // bytes have no order
		{"bayer_bggr8", 64, false, pipeline.BGGR8, 1},
		{"bayer_rggb16", 128, false, pipeline.RGGB16, 1},
		{"bayer_bggr16", 140, true, pipeline.BGGR16, 2},
		{"mono8", 64, false, pipeline.Grey, 1},
		{"8UC1", 64, false, pipeline.Grey, 1},
		{"mono16", 128, true, pipeline.Mono16, 2},
		{"16UC1", 128, false, pipeline.Mono16, 1},
		{"rgb8", 192, false, pipeline.RGB24, 1},
		{"bgr8", 193, false, pipeline.RGB24, 3},
		{"8UC3", 192, false, pipeline.RGB24, 3},
		{"uyvy", 128, false, pipeline.UYVY, 1},
		{"yuv422", 128, false, pipeline.UYVY, 1},
		{"yuyv", 128, false, pipeline.UYVY, 2},
		{"yuv422_yuy2", 131, false, pipeline.UYVY, 2},
	}
}

func (i *foreignImage) file() string {
	name := fmt.Sprintf("%s-%d", i.encoding, i.step)
	if i.big {
		name += "-big"
	}
	return name
}

// want returns image n as it must be played.
func (i *foreignImage) want(n int) string {
	b := make([]byte, i.step*48)
	for j := range b {
		b[j] = byte(40*n + 7*j)
	}
	for y := range 48 {
		for group := range slices.Chunk(b[y*i.step:][:i.pixel.LineBytes(64)], i.swapped) {
			slices.Reverse(group)
		}
	}
	return string(b)
}

// foreignFiles writes recordings of others with @mcap/core.
func foreignFiles(t *testing.T) (dir string) {
	t.Helper()
	if _, err := os.Stat("testdata/core/node_modules/@mcap/core"); err != nil {
		t.Skip("NEEDS @mcap/core, which make setup-test installs")
	}
	var list [][3]any
	for _, i := range foreignImages() {
		list = append(list, [3]any{i.encoding, i.step, map[string]bool{"big": i.big}})
	}
	kinds, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	c := exec.CommandContext(t.Context(), "node", "write.mjs", dir, string(kinds))
	c.Dir = filepath.Join("testdata", "core")
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("@mcap/core: %v: %s", err, out)
	}
	return dir
}

// compressedAs writes a file anew with compressed chunks, by the format's own writer.
func compressedAs(t *testing.T, path, to string, c foxglove.CompressionFormat) {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, err := foxglove.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	it, err := r.Messages()
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w, err := foxglove.NewWriter(out, &foxglove.WriterOptions{Chunked: true, ChunkSize: 8000, IncludeCRC: true, Compression: c})
	if err == nil {
		err = w.WriteHeader(&foxglove.Header{})
	}
	for n := 0; err == nil; n++ {
		schema, channel, m, failed := it.NextInto(nil)
		if errors.Is(failed, io.EOF) {
			break
		}
		if err = failed; err == nil && n == 0 {
			err = errors.Join(w.WriteSchema(schema), w.WriteChannel(channel))
		}
		if err == nil {
			err = w.WriteMessage(m)
		}
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
}

// playsAs checks that a file is played as images of a kind, n of them, byte by byte, and that verify agrees.
func playsAs(t *testing.T, path string, i *foreignImage, n int) {
	t.Helper()
	name := filepath.Base(path)
	got, lost, err := plays(path, disk(t))
	if err != nil || lost != nil || len(got) != n {
		t.Errorf("%s: %d frames, %v, %v", name, len(got), lost, err)
		return
	}
	for n := range n {
		if got[uint64(n)] != i.want(n) {
			t.Errorf("%s: frame %d has other bytes", name, n)
		}
	}
	r, err := OpenReader(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Format; f.Pixel != i.pixel || f.Width != 64 || f.Height != 48 || f.Stride != i.step {
		t.Errorf("%s: %s", name, f)
	}
	report, err := Inspect(t.Context(), path, true, func(float64) {})
	if err = errors.Join(err, r.Close()); err != nil || !report.Good() || report.Frames != n ||
		report.LastFrame-report.FirstFrame != uint64(n-1) || report.Image.Encoding != i.encoding ||
		report.Image.FrameID != "cam" || report.Image.At.UnixNano() != 1700000000000000005 && i.encoding != "" {
		t.Errorf("%s: %+v, %v", name, report, err)
	}
}

// TestRecordingsOfOthersArePlayed checks images by each encoding, and files with several images in a chunk, with one,
// without chunks, without an index, without an end and with compressed chunks.
func TestRecordingsOfOthersArePlayed(t *testing.T) {
	dir := foreignFiles(t)
	path := func(name string) string { return filepath.Join(dir, name+".mcap") }
	for _, i := range foreignImages() {
		playsAs(t, path(i.file()), &i, 3)
	}
	bayer := foreignImages()[0]
	for _, c := range []foxglove.CompressionFormat{foxglove.CompressionLZ4, foxglove.CompressionZSTD} {
		compressedAs(t, path("chunks"), path(string(c)), c)
		playsAs(t, path(string(c)), &bayer, 5)
	}
	for _, name := range []string{"chunks", "small-chunks", "one-a-chunk", "no-chunks", "no-index", "no-message-index", "no-repeats", "lz4", "zstd"} {
		playsAs(t, path(name), &bayer, 5)
		info, err := os.Stat(path(name))
		if err == nil {
			err = os.Truncate(path(name), info.Size()-10)
		}
		if err != nil {
			t.Fatal(err)
		}
		playsAs(t, path(name), &bayer, 5)
	}
	for _, name := range []string{"ros1", "foxglove", "jpeg-too", "two"} {
		playsAs(t, path(name), &bayer, 3)
	}
	playsAs(t, path("foxglove-first"), &foreignImage{"bgr8", 200, false, pipeline.RGB24, 3}, 3)
}

// TestImagesThatAreNotPlayedAreNamed checks that these are no damage.
func TestImagesThatAreNotPlayedAreNamed(t *testing.T) {
	dir := foreignFiles(t)
	for name, want := range map[string]string{
		"jpeg": "compressed images (jpeg) of channel /cam cannot be played: decode", "jpeg-ros1": "compressed images (jpeg) of channel /cam",
		"jpeg-foxglove": "compressed images (jpeg) of channel /cam", "h264": "compressed images (h264) of channel /cam",
		"rgba8": `images in "rgba8" of channel /cam cannot be played: convert`, "odd": "4:2:2 needs an even width",
		"jpeg-too": "compressed images (jpeg) of channel /jpeg", "two": "images of a second channel cannot be played",
	} {
		path := filepath.Join(dir, name+".mcap")
		r, err := Inspect(t.Context(), path, true, func(float64) {})
		if err != nil || !r.Good() || len(r.Others) != 1 || r.Others[0].Frames != 3 || !strings.Contains(r.Others[0].Reason, want) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if name == "jpeg-too" || name == "two" {
			continue
		}
		_, err = NewPlayer(t.Context(), []string{path}, Position{}, Position{}, nil)
		if !errors.Is(err, ErrNoFrames) || errors.Is(err, mcap.ErrDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPositionsWithinAChunk plays a part of the frames of a chunk, by time and by number.
func TestPositionsWithinAChunk(t *testing.T) {
	path := filepath.Join(foreignFiles(t), "chunks.mcap")
	for _, test := range []struct {
		from, to Position
		want     []uint64
	}{
		{At(100 * time.Millisecond), At(300 * time.Millisecond), []uint64{0, 1}}, // the first one played begins to count
		{Position{}, AtFrame(2), []uint64{0, 1}},
		{At(400 * time.Millisecond), Position{}, []uint64{0}},
		{At(time.Second), Position{}, nil},
		{At(100 * time.Millisecond), At(100 * time.Millisecond), nil},
	} {
		p, err := NewPlayer(t.Context(), []string{path}, test.from, test.to, nil)
		if test.want == nil {
			if !errors.Is(err, ErrRange) {
				t.Errorf("%+v: %v", test, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for round := range 2 {
			var got []uint64
			var f *Frame
			for f, err = p.Next(); err == nil; f, err = p.Next() {
				got = append(got, f.Note.Frame)
			}
			if !errors.Is(err, ErrEnd) || !slices.Equal(got, test.want) {
				t.Errorf("%+v, round %d: %d, %v", test, round, got, err)
			}
			if err := p.Rewind(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestASliceOfARecordingOfOthers checks that a slice has the images as they were, and is played as the file is.
func TestASliceOfARecordingOfOthers(t *testing.T) {
	dir := foreignFiles(t)
	images := append(foreignImages(), foreignImage{"bgr8", 200, false, pipeline.RGB24, 3})
	for n, i := range images {
		path, out := filepath.Join(dir, i.file()+".mcap"), filepath.Join(dir, "slice.mcap")
		if n == len(images)-1 {
			path = filepath.Join(dir, "foxglove-first.mcap")
		}
		sliceOf(t, path, out)
		playsAs(t, out, &i, 3)
		if i.encoding == "bgr8" && n < len(images)-1 { // in ROS the order of fields is fixed
			want, _ := ours(t, path)
			if got, _ := ours(t, out); !slices.Equal(got, want) {
				t.Errorf("%s: the messages of the slice differ", i.file())
			}
		}
	}
}

// sliceOf makes a slice of all frames of a file.
func sliceOf(t *testing.T, path, out string) {
	t.Helper()
	p, err := NewPlayer(t.Context(), []string{path}, Position{}, Position{}, disk(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	pixels := memory(t, p.Format.Size())
	var s *Slice
	for {
		f, err := p.Next()
		if errors.Is(err, ErrEnd) {
			break
		}
		if err == nil {
			err = f.Pixels(pixels)
		}
		if err == nil && s == nil {
			s, err = NewSlice(file, f)
		}
		if err == nil {
			err = s.Add(f, pixels)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
}

// FuzzImage parses whatever as an image of each kind.
func FuzzImage(f *testing.F) {
	f.Add([]byte("\x00\x01\x00\x00abcdefgh\x01\x00\x00\x00\x00"))
	f.Add([]byte{0x0a, 2, 8, 1, 0x3a, 1, 'c', 0x15, 2, 0, 0, 0, 0x1d, 2, 0, 0, 0, 0x22, 5, 'm', 'o', 'n', 'o', '8', 0x2d, 2, 0, 0, 0, 0x32, 4, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(i Image, err error) {
			if err != nil {
				return
			}
			if i.Pixels < 0 || i.Size < 0 || i.Behind < 0 || i.Tag < 0 || i.Pixels+i.Size+i.Behind != len(b) {
				t.Errorf("%+v of %d bytes", i, len(b))
			}
			if format, how, err := formatOf(mcap.Channel{}, i); err == nil && i.Size < 1<<20 {
				how.convert(make([]byte, i.Size), format)
			}
		}
		for _, ros1 := range []bool{true, false} {
			check(parseROS(b, len(b), ros1, false))
			check(parseROS(b, len(b), ros1, true))
		}
		for _, schema := range []string{rawImageName, compressedImageName, compressedVideoName} {
			n, _ := protobufOf(schema)
			check(parseProtobuf(n, func(p []byte, at int64) error { copy(p, b[at:]); return nil }, len(b)))
		}
	})
}
