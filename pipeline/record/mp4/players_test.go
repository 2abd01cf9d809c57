// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPlayersOpenFiles checks that FFmpeg and GStreamer decode every picture of a file, with its index and while it
// grows.
func TestPlayersOpenFiles(t *testing.T) {
	for name, codec := range map[string]Codec{"h264": H264, "jpeg": JPEG} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			track, samples := pictures(t, codec, 30)
			b, ends := write(t, track, samples, 7)
			path := filepath.Join(t.TempDir(), "a.mp4")
			for i, end := range append(ends[1:], len(b)) {
				want := upTo(0, min(7*(i+1), len(samples)))
				if err := os.WriteFile(path, b[:end], 0o600); err != nil {
					t.Fatal(err)
				}
				if got, err := byFFmpeg(t, path, "-xerror"); err != nil || !slices.Equal(got, want) {
					t.Errorf("%d bytes by FFmpeg: %v, want %v: %v", end, got, want, err)
				}
				if got, err := byGStreamer(t, path, codec); err != nil || !slices.Equal(got, want) {
					t.Errorf("%d bytes by GStreamer: %v, want %v: %v", end, got, want, err)
				}
			}
			out, err := output(t, nil, "ffprobe", "-v", "error", "-count_frames", "-of", "csv=p=0", "-show_entries",
				"stream=codec_name,width,height,nb_read_frames:format_tags=creation_time", path)
			want := map[Codec]string{H264: "h264", JPEG: "mjpeg"}[codec] + fmt.Sprintf(",%d,%d,30\n2026-05-04T03:02:01.000000Z\n", width, height)
			if err != nil || string(out) != want {
				t.Errorf("ffprobe says %q, want %q: %v", out, want, err)
			}
		})
	}
}

// TestMP4BoxReadsFiles checks that mp4box finds every sample and its time, and every note and its time, and that this
// package finds the same.
func TestMP4BoxReadsFiles(t *testing.T) {
	for codec, name := range map[Codec]string{H264: "avc1.42c00a", JPEG: "mp4v"} {
		track, samples := pictures(t, codec, 30)
		samples[7].Note = nil
		b, _ := write(t, track, samples, 7)
		f := read(t, b)
		got := byMP4Box(t, save(t, b))[0]
		if got.Error != "" || got.Codec != name ||
			got.Width != width || got.Height != height || got.Created != start.Unix() || got.Index != 1 ||
			len(got.Samples) != len(samples) || len(got.Notes) != len(samples)-1 {
			t.Fatalf("%+v", got)
		}
		notes := got.Notes
		for i := range samples {
			in, key := f.Info(i), int64(0)
			if samples[i].Key {
				key = 1
			}
			if want := [5]int64{in.Offset, int64(in.Size), int64(i) * 3000, 3000, key}; got.Samples[i] != want {
				t.Errorf("sample %d: %v, want %v", i, got.Samples[i], want)
			}
			note, err := f.Note(i)
			if err != nil || !bytes.Equal(note, samples[i].Note) {
				t.Errorf("note %d: %q, want %q: %v", i, note, samples[i].Note, err)
			}
			if i == 7 {
				continue
			}
			n := notes[0]
			notes = notes[1:]
			if n.Scheme != noteScheme ||
				n.Scale != 90000 || n.Time != int64(i)*3000 || n.Duration != 3000 || n.ID != int64(i+1) || n.Data != string(samples[i].Note) {
				t.Errorf("note %d: %+v", i, n)
			}
		}
	}
}

// long reports whether the long tests run, too.
var long = os.Getenv("TEGRACAST_LONG") != ""

// TestPlayersOpenCutFiles cuts a file at random bytes. What this package reads must be each whole fragment, and players
// must decode these pictures at least; after the repair, exactly these.
func TestPlayersOpenCutFiles(t *testing.T) {
	byPlayers, byGst := 32, 8
	switch {
	case long:
		byPlayers, byGst = cuts, cuts
	case testing.Short():
		byPlayers, byGst = 4, 2
	}
	for name, codec := range map[string]Codec{"h264": H264, "jpeg": JPEG} {
		t.Run(name, func(t *testing.T) {
			b, paths, wholes := cutFiles(t, codec)
			for i, whole := range wholes[:byPlayers] {
				if whole == 0 {
					continue // no player shows anything, and gst-launch-1.0 may hang after its error
				}
				got, err := byFFmpeg(t, paths[i], cutFlags(t, b, paths[i])...)
				atLeast(t, paths[i]+" by FFmpeg", got, err, whole)
				if i >= byGst {
					continue
				}
				got, err = byGStreamer(t, paths[i], codec)
				atLeast(t, paths[i]+" by GStreamer", got, err, whole)
			}
			for i, got := range byMP4Box(t, paths...) {
				if got.Error != "" || len(got.Samples) < wholes[i] || len(got.Samples) > wholes[i]+cutFragment {
					t.Errorf("%s by mp4box: %d samples, want %d: %s", paths[i], len(got.Samples), wholes[i], got.Error)
				}
			}
		})
	}
}

// TestVLCOpensFiles checks that VLC shows every picture of a file, with its index and while it grows, and the pictures of
// the whole fragments of a file that was cut at a random byte.
func TestVLCOpensFiles(t *testing.T) {
	if !long {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	for name, codec := range map[string]Codec{"h264": H264, "jpeg": JPEG} {
		t.Run(name, func(t *testing.T) {
			heldBack := map[Codec]int{JPEG: 1}[codec]
			track, samples := pictures(t, codec, 30)
			b, ends := write(t, track, samples, 7)
			for i, end := range append(ends[1:], len(b)) {
				want := upTo(0, min(7*(i+1), len(samples))-heldBack)
				if got, err := byVLC(t, save(t, b[:end]), codec); err != nil || !slices.Equal(got, want) {
					t.Errorf("%d bytes by VLC: %v, want %v: %v", end, got, want, err)
				}
			}
			_, paths, wholes := cutFiles(t, codec)
			for i, path := range paths {
				if wholes[i] > 0 {
					got, err := byVLC(t, path, codec)
					atLeast(t, path+" by VLC", got, err, wholes[i]-heldBack)
				}
			}
		})
	}
}

const (
	cuts        = 200
	cutFragment = 7 // pictures
)

// cutFiles cuts the file b of 30 pictures at random bytes. It returns the paths of the parts, and how many pictures are in
// their whole fragments, after checking that this package reads these, and repairs the part so that it has only these.
func cutFiles(t *testing.T, codec Codec) (b []byte, paths []string, wholes []int) {
	t.Helper()
	random, folder := seeded(t), t.TempDir()
	track, samples := pictures(t, codec, 30)
	b, ends := write(t, track, samples, cutFragment)
	for i := range cuts {
		cut := b[:ends[0]+random.IntN(len(b)-ends[0])]
		f := read(t, cut)
		k, found := slices.BinarySearch(ends, len(cut))
		if !found {
			k--
		}
		whole := min(cutFragment*k, len(samples))
		if f.Whole != int64(ends[k]) || f.Len() != whole || f.Finished {
			t.Fatalf("cut at %d: %d pictures in %d bytes, want %d in %d", len(cut), f.Len(), f.Whole, whole, ends[k])
		}
		repaired := bytes.NewBuffer(slices.Clone(cut[:f.Whole]))
		if err := f.Finish(repaired); err != nil {
			t.Fatal(err)
		}
		if whole > 0 {
			want, _ := write(t, track, samples[:whole], cutFragment)
			if !bytes.Equal(repaired.Bytes(), want) || !read(t, want).Finished {
				t.Fatalf("cut at %d: the repaired file is not what the writer had finished", len(cut))
			}
		}
		path := filepath.Join(folder, fmt.Sprintf("%d.mp4", i))
		if err := os.WriteFile(path, cut, 0o600); err != nil {
			t.Fatal(err)
		}
		paths, wholes = append(paths, path), append(wholes, whole)
	}
	return b, paths, wholes
}

// atLeast checks that a player has decoded the pictures of the whole fragments and, of the fragment after them, a part.
func atLeast(t *testing.T, what string, got []int, err error, whole int) {
	t.Helper()
	if err != nil || len(got) < whole || len(got) > whole+cutFragment || !slices.Equal(got[:whole], upTo(0, whole)) {
		t.Errorf("%s: %v, want %d: %v", what, got, whole, err)
	}
}

// cutFlags returns what FFmpeg needs to open a file that was cut: nothing, but where it ends in a moof box, which it
// looks for before it decodes, that it shall not do so.
func cutFlags(t *testing.T, whole []byte, path string) []string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if at := bytes.LastIndex(whole[:min(info.Size()+4, int64(len(whole)))], []byte("moof")) - 4; at >= 0 && info.Size() < int64(at)+int64(be.Uint32(whole[at:])) {
		return []string{"-fflags", "+ignidx"}
	}
	return nil
}

// TestPlayersOpenFilesCutAtPages checks that no moof box crosses the end of a page, and that FFmpeg, without any flag,
// opens a file that ends at a page.
func TestPlayersOpenFilesCutAtPages(t *testing.T) {
	const page, n = 4096, 5
	track, samples := pictures(t, JPEG, 60)
	b, ends := write(t, track, samples, n)
	fragments := 0
	for rest := b; ; fragments++ {
		i := bytes.Index(rest, []byte("moof"))
		if i < 0 {
			break
		}
		at := len(b) - len(rest) + i - 4
		size := int(be.Uint32(b[at:]))
		if at/page != (at+size-1)/page || size != moofSize(n) {
			t.Errorf("a moof box of %d bytes at %d", size, at)
		}
		rest = rest[i+4:]
	}
	if fragments != 12 || bytes.Count(b, []byte("free")) == 0 {
		t.Errorf("%d fragments, %d free boxes", fragments, bytes.Count(b, []byte("free")))
	}
	for end := page; end < len(b); end += page {
		k, _ := slices.BinarySearch(ends, end+1)
		whole := n * (k - 1)
		if got, err := byFFmpeg(t, save(t, b[:end])); err != nil || len(got) < whole || !slices.Equal(got[:whole], upTo(0, whole)) {
			t.Errorf("cut at %d: %v, want %d: %v", end, got, whole, err)
		}
	}
}

// TestFFmpegsFilesAreRead checks that fragmented files of FFmpeg are read, of which each picture has its data and time.
func TestFFmpegsFilesAreRead(t *testing.T) {
	_, samples := pictures(t, H264, 30)
	var stream []byte
	for _, s := range samples {
		stream = append(stream, s.Data...)
	}
	path := save(t, stream)
	for _, flags := range []string{"frag_keyframe+empty_moov+default_base_moof", "frag_keyframe+empty_moov", "frag_keyframe+empty_moov+cmaf"} {
		if _, err := output(t, nil, "ffmpeg", "-v", "error", "-y", "-f", "h264", "-r", "30", "-i", path, "-c", "copy", "-movflags", flags,
			"-metadata", "creation_time=2026-05-04T03:02:01Z", "-f", "mp4", path+".mp4"); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path + ".mp4")
		if err != nil {
			t.Fatal(err)
		}
		f := read(t, b)
		if f.Len() != len(samples) || !f.Finished && !strings.Contains(flags, "cmaf") || f.Track.Width != width || f.Track.Height != height {
			t.Fatalf("%s: %d pictures of %dx%d, finished %v", flags, f.Len(), f.Track.Width, f.Track.Height, f.Finished)
		}
		for i, s := range samples {
			data, err := f.Data(i)
			want := start.Truncate(time.Second).Add(time.Duration(i) * period).UTC()
			if in := f.Info(i); err != nil || !bytes.Equal(pictureOf(data), pictureOf(s.Data)) || in.Key != s.Key || in.At.Sub(want).Abs() > time.Millisecond {
				t.Errorf("%s: picture %d: %+v, want %v: %v", flags, i, in, want, err)
			}
		}
		span, err := f.Span(13, 27)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := byFFmpeg(t, save(t, all(t, span)), "-xerror"); err != nil || !slices.Equal(got, upTo(13, 27)) {
			t.Errorf("%s: %v: %v", flags, got, err)
		}
	}
}

// pictureOf returns the NAL units of a byte stream that contain a picture.
func pictureOf(b []byte) (list []byte) {
	for unit := range units(b) {
		if kind := unit[0] & 0x1f; kind == 1 || kind == 5 {
			list = append(append(list, startCode...), unit...)
		}
	}
	return list
}
