// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// TestPicturesAreReadBack checks that each picture has its data, its note, its time and its duration, also where one is
// missing before it.
func TestPicturesAreReadBack(t *testing.T) {
	for _, codec := range []Codec{H264, JPEG} {
		track, samples := pictures(t, codec, 30)
		for i := 17; i < len(samples); i++ {
			samples[i].At = samples[i].At.Add(3*period + 7) // after 3 that are missing
		}
		samples[11].Note = nil
		b, ends := write(t, track, samples, 8)
		f := read(t, b)
		if f.Len() != len(samples) || !f.Finished || f.Whole != int64(ends[4]) || !f.Begun.Equal(start) ||
			f.Track.Codec != codec || f.Track.Width != width || f.Track.Height != height || !bytes.Equal(f.Track.SPS, track.SPS) || !bytes.Equal(f.Track.PPS, track.PPS) {
			t.Fatalf("%d pictures, %+v", f.Len(), f)
		}
		if bytes.Contains(b, []byte("btrt")) {
			t.Error("the file states a bit rate, which nothing knows")
		}
		for i, s := range samples {
			in, lasts := f.Info(i), period
			if i == 16 {
				lasts += 3*period + 7
			}
			if in.Key != s.Key || in.At.Sub(s.At).Abs() > time.Second/timeScale || (in.Duration-lasts).Abs() > time.Second/timeScale || i%8 == 0 && !in.At.Equal(s.At) {
				t.Errorf("%d: %+v, want %v for %v", i, in, s.At, lasts)
			}
			note, err := f.Note(i)
			if err != nil || !bytes.Equal(note, s.Note) {
				t.Errorf("%d: note %q, want %q: %v", i, note, s.Note, err)
			}
			data, err := f.Data(i)
			if err != nil || codec == JPEG && !bytes.Equal(data, s.Data) || codec == H264 && !bytes.Equal(pictureOf(data), pictureOf(s.Data)) {
				t.Errorf("%d: %d bytes, want %d: %v", i, len(data), len(s.Data), err)
			}
			if bytes.Contains(data, []byte{0, 0, 0, 1, unitDelimiter}) {
				t.Errorf("%d: there is a delimiter", i)
			}
			if codec == H264 && s.Key != bytes.Contains(data, append([]byte{0, 0, 0, 1}, track.SPS...)) {
				t.Errorf("%d: key %v, and whether it has the SPS differs", i, s.Key)
			}
		}
	}
}

// TestMemoryIsUsedAgain overwrites the first picture, from which the file's parameter sets were taken, before the pictures
// of the next fragment come.
func TestMemoryIsUsedAgain(t *testing.T) {
	track, samples := pictures(t, H264, 2*gop)
	first := &samples[0]
	first.Data = bytes.Clone(first.Data)
	track.SPS, track.PPS = ParameterSets(first.Data)
	var b bytes.Buffer
	w, err := NewWriter(&b, track, samples[0].At)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Fragment(samples[:gop], samples[gop].At); err != nil {
		t.Fatal(err)
	}
	for i := range first.Data {
		first.Data[i] ^= 0xff
	}
	if err := w.Fragment(samples[gop:], samples[gop].At.Add(gop*period)); err != nil {
		t.Fatal(err)
	}
	f := read(t, b.Bytes())
	data, err := f.Data(gop)
	if err != nil || !bytes.Equal(pictureOf(data), pictureOf(samples[gop].Data)) || f.Len() != 2*gop {
		t.Errorf("%d pictures, picture %d has %d bytes: %v", f.Len(), gop, len(data), err)
	}
}

// TestClocksThatStep checks files with times that stand still, go backwards and jump: decode times rise, each first
// picture of a fragment has its capture time, and players show every picture.
func TestClocksThatStep(t *testing.T) {
	track, samples := pictures(t, H264, 40)
	at := start
	for i := range samples {
		switch at = at.Add(period); i {
		case 5, 6:
			at = samples[4].At
		case 13, 16:
			at = at.Add(-time.Hour)
		case 24:
			at = time.Unix(5, 6)
		case 32:
			at = start
		}
		samples[i].At = at
	}
	b, _ := write(t, track, samples, 8)
	f := read(t, b)
	for i := range samples {
		in := f.Info(i)
		if in.Duration <= 0 || i%8 == 0 && !in.At.Equal(samples[i].At) {
			t.Errorf("%d: %+v, want %v", i, in, samples[i].At)
		}
		if step := i == 12 || i == 15; step && in.Duration > time.Millisecond || !step && i > 6 && i < 23 && (in.Duration-period).Abs() > time.Millisecond {
			t.Errorf("%d lasts %v", i, in.Duration)
		}
		if note, err := f.Note(i); err != nil || !bytes.Equal(note, samples[i].Note) {
			t.Errorf("%d: %q: %v", i, note, err)
		}
	}
	if got, err := byFFmpeg(t, save(t, b), "-xerror"); err != nil || !slices.Equal(got, upTo(0, 40)) {
		t.Errorf("%v: %v", got, err)
	}
	s, err := f.Span(3, 38)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := byFFmpeg(t, save(t, all(t, s)), "-xerror"); err != nil || !slices.Equal(got, upTo(3, 38)) {
		t.Errorf("%v: %v", got, err)
	}
}

// TestGapsBetweenFragments checks that a picture lasts until the next fragment begins, if that is later than was
// announced, also after the clock was set back.
func TestGapsBetweenFragments(t *testing.T) {
	track, samples := pictures(t, JPEG, 15)
	var out bytes.Buffer
	w, err := NewWriter(&out, track, start)
	if err != nil {
		t.Fatal(err)
	}
	for i := range samples {
		if i >= 5 {
			samples[i].At = samples[i].At.Add(-time.Hour)
		}
		if i >= 10 {
			samples[i].At = samples[i].At.Add(5 * time.Second)
		}
	}
	for _, end := range []int{5, 10, 15} {
		if err := w.Fragment(samples[end-5:end], samples[end-1].At.Add(period)); err != nil {
			t.Fatal(err)
		}
	}
	f := read(t, out.Bytes())
	for i, s := range samples {
		want := period
		if i == 9 {
			want += 5 * time.Second
		}
		if in := f.Info(i); (in.Duration-want).Abs() > time.Millisecond || in.At.Sub(s.At).Abs() > time.Millisecond {
			t.Errorf("%d: %+v, want %v for %v", i, in, s.At, want)
		}
	}
}

// full is a file on a disk that has room for so many bytes.
type full struct {
	bytes.Buffer
	room int
}

var errFull = errors.New("full")

func (f *full) Write(b []byte) (int, error) {
	n, _ := f.Buffer.Write(b[:min(len(b), f.room-f.Len())])
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

// TestDiskGetsFull checks that a Writer that fails in a fragment writes nothing more, and leaves what was there before.
func TestDiskGetsFull(t *testing.T) {
	track, samples := pictures(t, JPEG, 20)
	_, ends := write(t, track, samples, 5)
	for _, room := range []int{ends[2] + 1, ends[3] - 1} {
		disk := &full{room: room}
		w, err := NewWriter(disk, track, start)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			if err := w.Fragment(samples[5*i:5*i+5], samples[5*i+4].At.Add(period)); (i >= 2) != errors.Is(err, errFull) {
				t.Errorf("fragment %d: %v", i, err)
			}
			disk.room += max(0, i-1) * 100000 // there is room again, which must not be used
		}
		if err := w.Close(); !errors.Is(err, errFull) || disk.Len() != room {
			t.Errorf("%d bytes, want %d: %v", disk.Len(), room, err)
		}
		if f := read(t, disk.Bytes()); f.Len() != 10 || f.Whole != int64(ends[2]) {
			t.Errorf("%d pictures in %d bytes, want 10 in %d", f.Len(), f.Whole, ends[2])
		}
	}
	if _, err := NewWriter(&full{room: 100}, track, start); !errors.Is(err, errFull) {
		t.Error(err)
	}
}

// TestWriterRefuses checks the errors of what cannot be in a file, after which the file can be continued.
func TestWriterRefuses(t *testing.T) {
	track, samples := pictures(t, H264, 2)
	other := track
	other.SPS = slices.Clone(track.SPS)
	other.SPS[3]++
	for want, tr := range map[string]Track{
		"needs the SPS": {}, "each side must be": {Codec: JPEG}, "1 to 65535": {Codec: JPEG, Width: 70000, Height: 8}, "unknown codec": {Codec: 9},
	} {
		if _, err := NewWriter(io.Discard, tr, start); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, other, start)
	if err != nil {
		t.Fatal(err)
	}
	good := samples[1:]
	long := []Sample{{Data: good[0].Data, Note: make([]byte, maxNotes+1)}}
	for want, bad := range map[string][]Sample{
		"another SPS": samples, "at least one": nil, "no byte stream": {{Data: []byte("a JPEG")}}, "notes": long,
	} {
		before := out.Len()
		if err := w.Fragment(bad, start); err == nil || !strings.Contains(err.Error(), want) || out.Len() != before {
			t.Errorf("%v, want %q; %d bytes", err, want, out.Len()-before)
		}
		if err := w.Fragment(good, start); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Fragment(good, start); err == nil {
		t.Error("a fragment after Close")
	}
	if f := read(t, out.Bytes()); f.Len() != 4 || !f.Finished {
		t.Errorf("%d pictures, finished %v", f.Len(), f.Finished)
	}
	w.samples = MaxSamples
	w.err = nil
	if err := w.Fragment(good, start); err == nil || !strings.Contains(err.Error(), "begin another file") {
		t.Error(err)
	}
}

// BenchmarkFragment measures a second of 60 pictures of 50 kB each.
func BenchmarkFragment(b *testing.B) {
	track, samples := pictures(b, H264, 60)
	for i := range samples {
		samples[i].Data = append(slices.Clip(samples[i].Data), bytes.Repeat([]byte{1}, 50_000)...)
		samples[i].Note = make([]byte, 300)
	}
	w, err := NewWriter(io.Discard, track, start)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.samples = 0
		if err := w.Fragment(samples, start.Add(time.Second)); err != nil {
			b.Fatal(err)
		}
	}
}

// addresses is a writer that checks that long writes lie in memory as in the file.
type addresses struct {
	at   uintptr
	long int
	t    *testing.T
}

func (w *addresses) Write(b []byte) (int, error) {
	if p := uintptr(unsafe.Pointer(unsafe.SliceData(b))); len(b) >= 64<<10 {
		w.long++
		if p%page != w.at%page {
			w.t.Errorf("%d bytes for offset %#x are at address %#x", len(b), w.at, p)
		}
	}
	w.at += uintptr(len(b))
	return len(b), nil
}

// TestLongFragmentsLieAsInTheFile checks it for fragments of several lengths.
func TestLongFragmentsLieAsInTheFile(t *testing.T) {
	out := &addresses{t: t}
	w, err := NewWriter(out, Track{Codec: JPEG, Width: 16, Height: 16}, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 40 {
		at := time.Unix(1e9+int64(n), 0)
		if err := w.Fragment([]Sample{{Data: make([]byte, 60_000+n*7919), Key: true, At: at}}, at.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if out.long < 30 {
		t.Errorf("%d long writes", out.long)
	}
}
