// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Pictures of the tests show their number: 16 squares, of which a white one is a bit that is set. Neither side is a
// multiple of 16, so that H.264 is cropped.
const (
	side   = 16
	width  = 8*side + 8
	height = 2*side + 6
	period = time.Second / 30
	gop    = 10 // pictures from one key picture of H.264 to the next
)

// start is a time with nanoseconds that the time scale does not have.
var start = time.Date(2026, 5, 4, 3, 2, 1, 123456789, time.UTC)

// numbered returns the picture that shows a number.
func numbered(n int) *image.Gray {
	m := image.NewGray(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		x, y := i%width/side, i/width/side
		if m.Pix[i] = 40; x < 8 && y < 2 && n>>(8*y+x)&1 == 1 {
			m.Pix[i] = 220
		}
	}
	return m
}

// shown returns the numbers that grey pictures show.
func shown(t *testing.T, b []byte) (list []int) {
	t.Helper()
	if len(b)%(width*height) != 0 {
		t.Fatalf("%d bytes are no pictures of %dx%d", len(b), width, height)
	}
	for ; len(b) > 0; b = b[width*height:] {
		n := 0
		for bit := range 16 {
			if b[(bit/8*side+side/2)*width+bit%8*side+side/2] > 128 {
				n |= 1 << bit
			}
		}
		list = append(list, n)
	}
	return list
}

// output runs a program, and returns what it writes to its standard output.
func output(t testing.TB, in []byte, name string, args ...string) ([]byte, error) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("NEEDS %s, which make setup-test installs", name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a program that hangs
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, errs.String())
	}
	return out, err
}

// encoded returns the numbered pictures that FFmpeg encodes as H.264, split into access units.
var encoded = sync.OnceValues(func() ([][]byte, error) {
	var raw bytes.Buffer
	for n := range 64 {
		raw.Write(numbered(n).Pix)
	}
	cmd := exec.Command("ffmpeg", "-v", "error", "-f", "rawvideo", "-pix_fmt", "gray", "-s", fmt.Sprintf("%dx%d", width, height), "-r", "30", "-i", "-",
		"-pix_fmt", "yuv420p", "-c:v", "libx264", "-preset", "ultrafast", "-profile:v", "baseline", "-qp", "20", "-threads", "1",
		"-x264-params", fmt.Sprintf("aud=1:keyint=%d:min-keyint=%d:scenecut=0", gop, gop), "-f", "h264", "-")
	cmd.Stdin = &raw
	b, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	parts := bytes.Split(b, []byte{0, 0, 0, 1, unitDelimiter})
	var list [][]byte
	for _, p := range parts[1:] {
		list = append(list, append([]byte{0, 0, 0, 1, unitDelimiter}, p...))
	}
	return list, nil
})

// pictures returns a track and the first n samples of it, with notes.
func pictures(t testing.TB, codec Codec, n int) (Track, []Sample) {
	t.Helper()
	track := Track{Codec: codec, Width: width, Height: height}
	var list []Sample
	for i := range n {
		s := Sample{Key: true, At: start.Add(time.Duration(i) * period), Note: fmt.Appendf(nil, `{"frame":%d}`, i)}
		if codec == JPEG {
			var b bytes.Buffer
			if err := jpeg.Encode(&b, numbered(i), nil); err != nil {
				t.Fatal(err)
			}
			s.Data = b.Bytes()
			list = append(list, s)
			continue
		}
		units264, err := encoded()
		if err != nil {
			t.Skip("NEEDS ffmpeg with libx264, which make setup-test installs:", err)
		}
		s.Data, s.Key = units264[i], i%gop == 0
		for unit := range units(s.Data) {
			switch unit[0] & 0x1f {
			case unitSPS:
				track.SPS = unit
			case unitPPS:
				track.PPS = unit
			}
		}
		list = append(list, s)
	}
	return track, list
}

// write writes samples in fragments of a number of pictures. It returns the file with its index, and the offsets at
// which the head and each fragment end.
func write(t testing.TB, track Track, samples []Sample, fragment int) (b []byte, ends []int) {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, track, samples[0].At)
	if err != nil {
		t.Fatal(err)
	}
	ends = append(ends, out.Len())
	for len(samples) > 0 {
		n := min(fragment, len(samples))
		end := samples[n-1].At.Add(period)
		if n < len(samples) {
			end = samples[n].At
		}
		if err := w.Fragment(samples[:n], end); err != nil {
			t.Fatal(err)
		}
		samples, ends = samples[n:], append(ends, out.Len())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), ends
}

// read reads a file in memory.
func read(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := Read(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// save writes a file and returns its path.
func save(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.mp4")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// all reads a Span.
func all(t testing.TB, s *Span) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size()))
	if err != nil || int64(len(b)) != s.Size() {
		t.Fatalf("%d bytes of %d: %v", len(b), s.Size(), err)
	}
	return b
}

// seeded returns a random generator, and logs its seed.
func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// byFFmpeg returns the numbers of the pictures that FFmpeg decodes. With flag -xerror any complaint is an error.
func byFFmpeg(t *testing.T, path string, flags ...string) ([]int, error) {
	t.Helper()
	args := append(append([]string{"-v", "error", "-threads", "1"}, flags...), "-i", path, "-fps_mode", "passthrough", "-pix_fmt", "gray", "-f", "rawvideo", "-")
	out, err := output(t, nil, "ffmpeg", args...)
	return shown(t, out), err
}

// byGStreamer returns the numbers of the pictures that GStreamer decodes.
func byGStreamer(t *testing.T, path string, codec Codec) ([]int, error) {
	t.Helper()
	decoder := "h264parse ! openh264dec"
	if codec == JPEG {
		decoder = "jpegdec"
	}
	args := strings.Fields("-q filesrc location=" + path + " ! qtdemux ! " + decoder +
		" ! videoconvert ! videocrop top=0 ! video/x-raw,format=GRAY8 ! filesink location=" + path + ".raw")
	if _, err := output(t, nil, "gst-launch-1.0", args...); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path + ".raw")
	if err != nil {
		t.Fatal(err)
	}
	return shown(t, b), nil
}

// byVLC returns the numbers of the pictures that VLC decodes or, of JPEG, which its transcoder takes for 25 pictures a
// second, those that VLC finds, without the last one: in FFmpeg's files, too, it holds that back. VLC refuses to run as
// root.
func byVLC(t *testing.T, path string, codec Codec) ([]int, error) {
	t.Helper()
	if _, err := exec.LookPath("cvlc"); err != nil {
		t.Skip("NEEDS VLC, which make test-long-peers installs: apt-get install --no-install-recommends vlc-bin vlc-plugin-base")
	}
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	sout := "#std{access=file,mux=dummy,dst=-}"
	if codec == H264 {
		sout = "#transcode{vcodec=GREY}:" + sout[1:]
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a program that hangs
	defer cancel()
	cmd := exec.CommandContext(ctx, "cvlc", "-q", "--no-audio", "--play-and-exit", "--sout", sout, "fd://0")
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = in, &errs
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Env = append(os.Environ(), "HOME=/nonexistent")
	}
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%v: %w: %s", cmd, err, errs.String())
	}
	if codec == H264 {
		return shown(t, out), err
	}
	var grey []byte
	begin := []byte{0xff, 0xd8}
	for _, b := range bytes.Split(out, begin)[1:] {
		m, err := jpeg.Decode(io.MultiReader(bytes.NewReader(begin), bytes.NewReader(b)))
		if errors.Is(err, io.ErrUnexpectedEOF) { // the last one of a file that was cut
			break
		} else if err != nil {
			return nil, err
		}
		g := m.(*image.Gray)
		for y := range height {
			grey = append(grey, g.Pix[y*g.Stride:][:width]...)
		}
	}
	return shown(t, grey), err
}

// A boxed holds the output of testdata/mp4box/read.mjs for a file.
type boxed struct {
	Error, Codec  string
	Width, Height int
	Created       int64
	Samples       [][5]int64 // offset, size, time, duration, key
	Notes         []struct {
		Scheme                    string
		Scale, Duration, ID, Time int64
		Data                      string
	}
	Edits [][2]int64
	Index int
}

// byMP4Box reads files with mp4box.
func byMP4Box(t *testing.T, paths ...string) (list []boxed) {
	t.Helper()
	if _, err := os.Stat("testdata/mp4box/node_modules/mp4box"); err != nil {
		t.Skip("NEEDS mp4box, which make setup-test installs")
	}
	out, err := output(t, nil, "node", append([]string{"testdata/mp4box/read.mjs"}, paths...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &list); err != nil || len(list) != len(paths) {
		t.Fatalf("%d of %d: %v: %.300s", len(list), len(paths), err, out)
	}
	return list
}

// upTo returns the numbers from a up to b.
func upTo(a, b int) (list []int) {
	for ; a < b; a++ {
		list = append(list, a)
	}
	return list
}
