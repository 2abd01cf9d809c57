// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	foxglove "github.com/foxglove/mcap/go/mcap"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

const frames = 6

// noise is a source of frames of random samples, using all values of the format. Frame 3 is missing.
type noise struct {
	pool   *pipeline.Pool
	format pipeline.Format
	pixels [][]byte
	fill   func(pixels []byte) // nil: noise
}

func (n *noise) Format() pipeline.Format       { return n.format }
func (n *noise) Status() pipeline.SourceStatus { return pipeline.SourceStatus{Waits: true} }

func (n *noise) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	random := rand.New(rand.NewPCG(1, 2))
	s, samples := n.format.Pixel.Samples()
	for i := range uint64(frames + 1) {
		f, err := n.pool.Wait(ctx)
		if err != nil {
			return err
		}
		for at := range f.Bytes {
			f.Bytes[at] = byte(random.Uint32())
			if samples && !s.Packed && at%2 == 1 && s.Bits > 8 {
				f.Bytes[at] &= byte(1<<(s.Bits-8) - 1)
			}
		}
		if n.fill != nil {
			n.fill(f.Bytes)
		}
		if f.Sequence = 100 + i; i == 3 {
			f.Release()
			continue
		}
		f.Times.ExposureStart = time.Unix(1700000000, int64(i)*1e8)
		f.Times.Captured = f.Times.ExposureStart.Add(time.Millisecond)
		n.pixels = append(n.pixels, bytes.Clone(f.Bytes))
		emit(f)
	}
	return nil
}

func driver(t testing.TB) *cufile.Driver {
	t.Helper()
	d, err := cufile.Open(cufile.Config{Settings: cufile.DefaultSettings(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// recorded makes a recording, and returns the frames' pixels.
func recorded(t testing.TB, d *cufile.Driver, p pipeline.PixelFormat, width, height int) (path string, f pipeline.Format, pixels [][]byte) {
	t.Helper()
	return recordedAs(t, d, p, width, height, nil, nil)
}

// recordedAs does the same with camera settings and the pixels that fill makes, both if not nil.
func recordedAs(t testing.TB, d *cufile.Driver, p pipeline.PixelFormat, width, height int, settings func() (record.Settings, bool),
	fill func(pixels []byte),
) (path string, f pipeline.Format, pixels [][]byte) {
	t.Helper()
	f, err := pipeline.NewFormat(p, width, height, pipeline.Rate{Num: 10, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	log, dir := slog.New(slog.DiscardHandler), t.TempDir()
	sink, err := record.New(record.Config{
		Directory: dir, Name: "x", Source: "camera", Library: "test", Driver: d, Configuration: []byte("outputs: []\n"), Settings: settings, Logger: log,
	}, f)
	if err != nil {
		t.Fatal(err)
	}
	n := &noise{format: f, fill: fill, pool: pipeline.NewPool("noise", f, []pipeline.Slot{{Bytes: make([]byte, f.Size())}, {Bytes: make([]byte, f.Size())}}, nil)}
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: log, Grace: time.Minute})
	err = g.AddSource("camera", n)
	if err == nil {
		_, err = g.Attach(pipeline.OutputConfig{Name: "x", Sink: sink, Policy: pipeline.Block})
	}
	if err := errors.Join(err, g.Run(t.Context()), g.Close()); err != nil {
		t.Fatal(err)
	}
	files, err := record.Files(dir, "x")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	return files[0], f, n.pixels
}

// exported exports frames, and returns the path.
func exported(t testing.TB, c Config, format string) string {
	t.Helper()
	c.Format, c.Out = format, filepath.Join(t.TempDir(), "out."+format)
	done := 0.0
	res, err := Run(t.Context(), c, func(part float64) { done = part })
	if err != nil || res.Lost != 0 || done != 1 {
		t.Fatalf("%s: %+v, %v; %v done", format, res, err, done)
	}
	return c.Out
}

// values returns the samples of a frame, according to the definition of each layout.
func values(f pipeline.Format, s pipeline.Samples, b []byte) (v []uint16) {
	for y := range f.Height {
		line := b[y*f.Stride:]
		for x := range f.Width {
			switch {
			case s.Packed && s.Bits == 10:
				v = append(v, uint16(line[x/4*5+x%4])*4+uint16(line[x/4*5+4]>>(x%4*2))%4)
			case s.Packed:
				v = append(v, uint16(line[x/2*3+x%2])*16+uint16(line[x/2*3+2]>>(x%2*4))%16)
			case s.Bits == 8:
				v = append(v, uint16(line[x]))
			default:
				v = append(v, uint16(line[2*x])+256*uint16(line[2*x+1]))
			}
		}
	}
	return v
}

// sensors lists formats with each number of bits, each packing and each mosaic.
var sensors = []pipeline.PixelFormat{
	pipeline.RGGB8, pipeline.GRBG10, pipeline.GBRG12, pipeline.BGGR14, pipeline.RGGB16, pipeline.BGGR10P, pipeline.GRBG12P,
	pipeline.Grey, pipeline.Mono10, pipeline.Mono16,
}

// TestASliceIsARecording checks that a slice of some frames has them bit by bit, with notes, metadata and attachment,
// according to the format's own reader.
func TestASliceIsARecording(t *testing.T) {
	d := driver(t)
	path, _, pixels := recorded(t, d, pipeline.RGGB10, 64, 34)
	out := exported(t, Config{Files: []string{path}, Driver: d, From: record.At(100 * time.Millisecond), To: record.AtFrame(106)}, "mcap")
	again := exported(t, Config{Files: []string{out}, Driver: d}, "mcap")
	if a, b := content(t, out), content(t, again); !bytes.Equal(a, b) {
		t.Error("the slice of a slice differs from it")
	}
	r, err := record.Inspect(t.Context(), out, true, func(float64) {})
	if err != nil || !r.Good() || !r.Finished || r.Checked != 4 || r.Lost != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	whole, part := messages(t, path), messages(t, out)
	if len(part) != 8 || len(whole) != 2*frames {
		t.Fatalf("%d messages of %d", len(part), len(whole))
	}
	for i, m := range part {
		if m != whole[2+i] {
			t.Errorf("message %d differs", i)
		}
		if i%2 == 0 && !strings.HasSuffix(m, string(pixels[1+i/2])) {
			t.Errorf("message %d has other pixels", i)
		}
	}
}

func content(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// messages reads a recording with the format's own reader.
func messages(t *testing.T, path string) (all []string) {
	t.Helper()
	r, err := foxglove.NewReader(bytes.NewReader(content(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.Info()
	if err != nil || len(info.AttachmentIndexes) != 1 || info.AttachmentIndexes[0].Name != "tegracast.yaml" {
		t.Fatalf("%+v, %v", info, err)
	}
	it, err := r.Messages()
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, c, m, err := it.NextInto(nil)
		if err != nil {
			if uint64(len(all)) != info.Statistics.MessageCount {
				t.Errorf("%d messages of %d: %v", len(all), info.Statistics.MessageCount, err)
			}
			return all
		}
		all = append(all, fmt.Sprint(c.Topic, m.Sequence, m.LogTime)+string(m.Data))
	}
}

func TestY4MHasThePictures(t *testing.T) {
	d := driver(t)
	for pixel, chroma := range map[pipeline.PixelFormat]string{pipeline.UYVY: "422", pipeline.I420: "420jpeg", pipeline.Grey: "mono"} {
		path, f, pixels := recorded(t, d, pixel, 30, 18)
		b := content(t, exported(t, Config{Files: []string{path}, Driver: d}, "y4m"))
		head, rest, _ := bytes.Cut(b, []byte("\n"))
		if want := "YUV4MPEG2 W30 H18 F10:1 Ip A1:1 C" + chroma; !strings.HasPrefix(string(head), want) {
			t.Errorf("%s, want %s", head, want)
		}
		for i, p := range pixels {
			if pixel == pipeline.UYVY {
				p = planes(f, p)
			}
			if rest = bytes.TrimPrefix(rest, []byte("FRAME\n")); !bytes.HasPrefix(rest, p) {
				t.Fatalf("%s: frame %d differs", pixel, i)
			}
			rest = rest[len(p):]
		}
		if len(rest) > 0 {
			t.Errorf("%d bytes more", len(rest))
		}
	}
}

// planes converts a UYVY picture to three planes.
func planes(f pipeline.Format, p []byte) []byte {
	var y, u, v []byte
	for i := 0; i < f.Size(); i += 4 {
		y, u, v = append(y, p[i+1], p[i+3]), append(u, p[i]), append(v, p[i+2])
	}
	return append(append(y, u...), v...)
}

func TestPNGHasTheSamples(t *testing.T) {
	d := driver(t)
	for _, pixel := range append(sensors, pipeline.RGB24) {
		path, f, pixels := recorded(t, d, pixel, 32, 6)
		b := content(t, filepath.Join(exported(t, Config{Files: []string{path}, Driver: d}, "png"), "frame-00000104.png"))
		img, err := png.Decode(bytes.NewReader(b))
		if err != nil || img.Bounds() != image.Rect(0, 0, f.Width, f.Height) {
			t.Fatal(pixel, err)
		}
		if pixel == pipeline.RGB24 {
			if c := img.At(5, 1); c != (color.RGBA{pixels[3][f.Stride+15], pixels[3][f.Stride+16], pixels[3][f.Stride+17], 255}) {
				t.Errorf("%v", c)
			}
			continue
		}
		s, _ := pixel.Samples()
		for i, v := range values(f, s, pixels[3]) {
			got, _, _, _ := img.At(i%f.Width, i/f.Width).RGBA()
			if got>>(16-s.Bits) != uint32(v) {
				t.Fatalf("%s: sample %d is %#x of %#x", pixel, i, got, v)
			}
		}
	}
}

// TestPNGHasTheColours checks the bars of ITU-R BT.709 and black and white, within rounding.
func TestPNGHasTheColours(t *testing.T) {
	f, _ := pipeline.NewFormat(pipeline.UYVY, 2, 2, pipeline.Rate{})
	for _, c := range []struct{ y, cb, cr, r, g, b byte }{
		{16, 128, 128, 0, 0, 0},
		{235, 128, 128, 255, 255, 255},
		{63, 102, 240, 255, 0, 0},
		{173, 42, 26, 0, 255, 0},
		{32, 240, 118, 0, 0, 255},
		{255, 128, 128, 255, 255, 255},
		{0, 128, 128, 0, 0, 0},
	} {
		got := uyvy(f, bytes.Repeat([]byte{c.cb, c.y, c.cr, c.y}, 2)).At(1, 1).(color.NRGBA)
		for i, pair := range [][2]byte{{got.R, c.r}, {got.G, c.g}, {got.B, c.b}} {
			if d := int(pair[0]) - int(pair[1]); d < -2 || d > 2 {
				t.Errorf("%+v: channel %d is %d", c, i, pair[0])
			}
		}
	}
}

// TestAnExportThatCannotBe checks that an impossible export is refused with the reason, and leaves no file.
func TestAnExportThatCannotBe(t *testing.T) {
	d := driver(t)
	samples, _, _ := recorded(t, d, pipeline.RGGB10, 64, 48)
	uyvy, _, _ := recorded(t, d, pipeline.UYVY, 64, 48)
	there := filepath.Join(t.TempDir(), "there.mkv")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		c    Config
		want error
		says string
	}{
		{Config{Files: []string{samples}, Format: "avi"}, ErrUnknown, "use mcap, y4m, png, dng, mp4 or mkv"},
		{Config{Files: []string{samples}, Format: "y4m"}, ErrPixels, "the frames are RG10: export mp4, dng or png"},
		{Config{Files: []string{uyvy}, Format: "dng"}, ErrPixels, "export png or y4m"},
		{Config{Files: []string{uyvy, samples}, Format: "mcap"}, record.ErrFormat, "play them one after the other"},
		{Config{Files: []string{uyvy}, Format: "mcap", From: record.AtFrame(107)}, record.ErrRange, "from frame 107 on: the file has frames 100 to 106"},
		{Config{Files: []string{there}, Format: "mcap"}, nil, "not an MCAP file"},
		{Config{Files: []string{uyvy}, Format: "mcap", Out: there}, ErrExists, "remove it"},
		{Config{Files: []string{uyvy}, Format: "mkv", Out: there}, ErrExists, "remove it"},
	} {
		if c.c.Driver = d; c.c.Out == "" {
			c.c.Out = filepath.Join(t.TempDir(), "out")
		}
		_, err := Run(t.Context(), c.c, func(float64) {})
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.c, err, c.says)
		}
		if _, err := os.Stat(c.c.Out); err == nil && c.c.Out != there {
			t.Errorf("%+v: the file is there", c.c)
		}
	}
}

// TestDamagedFramesAreLeftOut checks that damaged frames are omitted and reported.
func TestDamagedFramesAreLeftOut(t *testing.T) {
	d := driver(t)
	path, f, _ := recorded(t, d, pipeline.UYVY, 64, 48)
	b := content(t, path)
	b[len(b)/2+f.Size()/2] ^= 1 // the middle of the file is between two frames
	bad := filepath.Join(t.TempDir(), "bad.mcap")
	if err := os.WriteFile(bad, b, 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.y4m")
	res, err := Run(t.Context(), Config{Files: []string{bad}, Driver: d, Format: "y4m", Out: out}, func(float64) {})
	if err != nil || res.Lost != 1 || res.Frames != frames-1 || !strings.Contains(res.Damaged[0].Error(), "have CRC") {
		t.Fatalf("%+v, %v", res, err)
	}
	if size := len(content(t, out)); size < res.Frames*f.Size() || size > frames*f.Size() {
		t.Errorf("%d bytes", size)
	}
}
