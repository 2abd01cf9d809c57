// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestReadRefuses checks the errors of files of other kinds and of a disk that fails.
func TestReadRefuses(t *testing.T) {
	track, samples := pictures(t, H264, 20)
	b, ends := write(t, track, samples, 10)
	span, err := read(t, b).Span(0, 20)
	if err != nil {
		t.Fatal(err)
	}
	shifted := bytes.Clone(b)
	at := bytes.Index(shifted, []byte("trun"))
	shifted[at+6] = (trunDuration | trunSize | trunShift) >> 8 // what are flags without this
	two := bytes.Replace(b, []byte("mvex"), []byte("trak"), 1)
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"nothing": {nil, "does not begin with"}, "text": {[]byte(strings.Repeat("text", 99)), "does not begin with"}, "a cut head": {b[:ends[0]-1], "cut before its first picture"},
		"a span": {all(t, span), "not in fragments"}, "reordered": {shifted, "display order"}, "two tracks": {two, "moov box"},
	} {
		if _, err := Read(bytes.NewReader(c.b), int64(len(c.b))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for from := range 3 {
		if _, err := Read(&broken{b, int64(ends[from] - 1)}, int64(len(b))); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a disk that fails at %d: %v", ends[from]-1, err)
		}
	}
}

// broken reads as a file on a disk that fails from an offset on.
type broken struct {
	b  []byte
	at int64
}

func (r *broken) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > r.at {
		return 0, os.ErrDeadlineExceeded
	}
	return bytes.NewReader(r.b).ReadAt(p, off)
}

// TestDeepBoxes checks that a Span refuses boxes in boxes without end, each level of which would cost memory.
func TestDeepBoxes(t *testing.T) {
	track, samples := pictures(t, JPEG, 2)
	b, ends := write(t, track, samples, 2)
	var deep []byte
	for n := 100; n > 0; n-- {
		deep = append(be.AppendUint32(deep, uint32(8*n)), "dinf"...)
	}
	hostile := append(append(bytes.Clone(b[:ends[0]]), deep...), b[ends[0]:]...)
	moov := hostile[bytes.Index(hostile, []byte("moov"))-4:]
	be.PutUint32(moov, be.Uint32(moov)+uint32(len(deep)))
	f := read(t, hostile)
	if _, err := f.Span(0, f.Len()); !errors.Is(err, errMalformed) || f.Len() != 2 {
		t.Errorf("%d pictures: %v", f.Len(), err)
	}
}

// TestDamagedEnds checks that what follows the last whole fragment is ignored: zeros, as after a power cut, and others.
func TestDamagedEnds(t *testing.T) {
	track, samples := pictures(t, JPEG, 20)
	b, ends := write(t, track, samples, 10)
	index, text := b[ends[2]:], bytes.Repeat([]byte("text"), 1000)
	long := bytes.Clone(b[ends[0]:ends[1]])
	long[bytes.Index(long, []byte("mdat"))-9]++ // of the last size in trun, before the flags and the size of mdat
	early := bytes.Clone(b[ends[0]:ends[1]])
	early[bytes.Index(early, []byte("trun"))+15]-- // of the data offset
	for name, tail := range map[string][]byte{
		"zeros": make([]byte, 100000), "text": text, "a picture beyond its mdat box": long, "a picture that begins before it": early,
		"an index and text": append(bytes.Clone(index), text...), "an index after a box": append([]byte("\x00\x00\x00\x08free"), index...),
		"its beginning": b[ends[0]:ends[1]],
		"a huge moof":   append([]byte{0x7f, 0, 0, 0}, "moof"...), "a free box": append([]byte{0, 0, 0, 8}, "free"...),
	} {
		damaged := append(bytes.Clone(b[:ends[2]]), tail...)
		f := read(t, damaged)
		if name == "its beginning" { // which has earlier decode times, and offsets that count from itself
			if f.Len() != 30 || f.Info(29).Duration <= 0 {
				t.Errorf("%s: %d pictures", name, f.Len())
			}
		} else if f.Len() != 20 || f.Whole != int64(ends[2]) || f.Finished {
			t.Errorf("%s: %d pictures in %d bytes, want 20 in %d", name, f.Len(), f.Whole, ends[2])
		}
	}
}

// counter counts the bytes that are read.
type counter struct {
	io.ReaderAt
	n int
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	c.n += len(p)
	return c.ReaderAt.ReadAt(p, off)
}

// TestReadLeavesPictures checks that Read reads the boxes and not the pictures, and keeps at most 48 bytes of a sample.
func TestReadLeavesPictures(t *testing.T) {
	track, samples := pictures(t, JPEG, 20)
	for i := range samples {
		samples[i].Data = make([]byte, 100_000)
	}
	b, _ := write(t, track, samples, 10)
	c := &counter{ReaderAt: bytes.NewReader(b)}
	f, err := Read(c, int64(len(b)))
	if err != nil || f.Len() != 20 || c.n > len(b)/10 {
		t.Errorf("%d of %d bytes are read: %v", c.n, len(b), err)
	}
	if n := unsafe.Sizeof(sample{}); n > 48 {
		t.Errorf("a sample has %d bytes", n)
	}
}

// grown checks that a file that was read when it had n bytes, and then read on, is the file that is read at once.
func grown(t *testing.T, b []byte, n int, whole *File) {
	t.Helper()
	part, err := Read(bytes.NewReader(b[:n]), int64(n))
	if err != nil {
		return
	}
	before, last := part.Len(), part.Whole
	f, err := part.Grown(bytes.NewReader(b), int64(len(b)))
	if err != nil || !slices.Equal(f.samples, whole.samples) || !slices.Equal(f.fragments, whole.fragments) || f.Whole != whole.Whole ||
		f.Finished != whole.Finished || !f.Begun.Equal(whole.Begun) || f.end != whole.end || part.Len() != before || part.Whole != last {
		t.Fatalf("from %d bytes on: %v: %d pictures in %d bytes, want %d in %d", n, err, f.Len(), f.Whole, whole.Len(), whole.Whole)
	}
}

// TestGrown reads files of many lengths on, whose last fragment does not say when it begins.
func TestGrown(t *testing.T) {
	for _, codec := range []Codec{H264, JPEG} {
		track, samples := pictures(t, codec, 12)
		for i := range samples {
			samples[i].Data = samples[i].Data[:min(len(samples[i].Data), 60)]
		}
		b, ends := write(t, track, samples, 5)
		copy(b[ends[2]:], bytes.ReplaceAll(b[ends[2]:], []byte("prft"), []byte("free")))
		whole := read(t, b)
		for n := 0; n <= len(b); n += 13 {
			grown(t, b, n, whole)
		}
		grown(t, b, len(b), whole)
	}
}

// FuzzRead reads files of anyone, and spans of them. What is read must be within the file, and the file with its index
// must be read again as the same.
func FuzzRead(f *testing.F) {
	for _, codec := range []Codec{H264, JPEG} {
		track, samples := pictures(f, codec, 12)
		for i := range samples {
			samples[i].Data = samples[i].Data[:min(len(samples[i].Data), 60)]
		}
		b, ends := write(f, track, samples, 5)
		f.Add(b)
		f.Add(b[:ends[2]])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		grown(t, b, len(b)*2/3, file)
		total, at := int64(0), time.Duration(0)
		for i := range file.Len() {
			in := file.Info(i)
			if in.Size <= 0 || in.Offset < 0 || in.Offset+int64(in.Size) > file.Whole {
				t.Fatalf("%d: %+v", i, in)
			}
			total += int64(in.Size)
			at += in.Duration
			if data, err := file.Data(i); err == nil && len(data) < in.Size {
				t.Errorf("%d: %d bytes of %d", i, len(data), in.Size)
			}
			if note, err := file.Note(i); err == nil && len(note) > len(b) {
				t.Errorf("%d: a note of %d bytes", i, len(note))
			}
		}
		if file.Whole > int64(len(b)) || total > file.Whole {
			t.Fatalf("%d bytes of pictures, %d of %d whole", total, file.Whole, len(b))
		}
		for _, from := range []int{0, file.Len() / 2} {
			if s, err := file.Span(from, file.Len()); err == nil {
				if got := all(t, s); s.Size() > int64(len(b))*3+maxHead+total || len(got) == 0 {
					t.Errorf("a span of %d bytes", s.Size())
				}
			}
		}
		repaired := bytes.NewBuffer(bytes.Clone(b[:file.Whole]))
		if err := file.Finish(repaired); err != nil {
			t.Fatal(err)
		}
		again := read(t, repaired.Bytes())
		if again.Len() != file.Len() || !again.Finished || again.Whole != file.Whole {
			t.Errorf("%d pictures in %d bytes, then %d in %d", file.Len(), file.Whole, again.Len(), again.Whole)
		}
	})
}

// BenchmarkRead reads ten minutes of 60 small pictures a second with their notes.
func BenchmarkRead(b *testing.B) {
	track, samples := pictures(b, H264, 60)
	var out bytes.Buffer
	w, err := NewWriter(&out, track, start)
	if err != nil {
		b.Fatal(err)
	}
	for range 600 {
		if err := w.Fragment(samples, start.Add(time.Second)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if f := read(b, out.Bytes()); f.Len() != 36000 {
			b.Fatal(f.Len())
		}
	}
}

// sparse is a file whose zeros at the end of each write take no space.
type sparse struct {
	*os.File
	end int64
}

func (s *sparse) Write(b []byte) (int, error) {
	_, err := s.WriteAt(bytes.TrimRight(b, "\x00"), s.end)
	s.end += int64(len(b))
	return len(b), err
}

// BenchmarkReadLong reads files of hours from the disk, which has them in memory or not, and makes a Span of all.
func BenchmarkReadLong(b *testing.B) {
	const rate = 30
	for _, hours := range []int{1, 8} {
		f, err := os.Create(filepath.Join(b.TempDir(), "a.mp4"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		out := &sparse{File: f}
		w, err := NewWriter(out, Track{Codec: JPEG, Width: width, Height: height}, start)
		if err != nil {
			b.Fatal(err)
		}
		samples := make([]Sample, rate)
		for i := range samples {
			samples[i] = Sample{append([]byte("x"), make([]byte, 4000)...), true, start, bytes.Repeat([]byte(" "), 300)}
		}
		for range hours * 3600 {
			if err := w.Fragment(samples, start.Add(time.Second)); err != nil {
				b.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), f.Sync()); err != nil {
			b.Fatal(err)
		}
		for name, cold := range map[string]bool{"cold": true, "warm": false} {
			b.Run(fmt.Sprintf("%dh/%s", hours, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if cold {
						if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
							b.Fatal(err)
						}
					}
					if got, err := Read(f, out.end); err != nil || got.Len() != hours*3600*rate {
						b.Fatal(got, err)
					}
				}
			})
		}
		got, err := Read(f, out.end)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%dh/span", hours), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := got.Span(0, got.Len()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSpan makes a Span of an hour of 60 pictures a second.
func BenchmarkSpan(b *testing.B) {
	track, samples := pictures(b, H264, 60)
	data, _ := write(b, track, samples, 60)
	f := read(b, data)
	for range 3600 {
		f.samples = append(f.samples, f.samples[:60]...)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Span(0, f.Len()); err != nil {
			b.Fatal(err)
		}
	}
}
