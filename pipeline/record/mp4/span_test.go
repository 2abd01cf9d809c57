// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"
)

// TestPlayersOpenSpans checks that players show the pictures of a Span and no others, if it begins with a key picture
// and if it does not.
func TestPlayersOpenSpans(t *testing.T) {
	for name, codec := range map[string]Codec{"h264": H264, "jpeg": JPEG} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			track, samples := pictures(t, codec, 40)
			b, _ := write(t, track, samples, 7)
			f := read(t, b)
			var paths []string
			cases := [][2]int{{0, 40}, {10, 23}, {13, 27}, {9, 10}, {39, 40}}
			for _, c := range cases {
				s, err := f.Span(c[0], c[1])
				if err != nil {
					t.Fatal(err)
				}
				path := save(t, all(t, s))
				paths = append(paths, path)
				want := upTo(c[0], c[1])
				if got, err := byFFmpeg(t, path, "-xerror"); err != nil || !slices.Equal(got, want) {
					t.Errorf("%v by FFmpeg: %v: %v", c, got, err)
				}
				if got, err := byGStreamer(t, path, codec); err != nil || !slices.Equal(got, want) {
					t.Errorf("%v by GStreamer: %v: %v", c, got, err)
				}
			}
			for i, got := range byMP4Box(t, paths...) {
				from := cases[i][0]
				key, shown := from, int64(cases[i][1]-from)*3000
				for !samples[key].Key {
					key--
				}
				var edits [][2]int64
				if key < from {
					edits = [][2]int64{{shown, int64(from-key) * 3000}}
				}
				if got.Error != "" || got.Codec == "" || len(got.Samples) != cases[i][1]-key || !slices.Equal(got.Edits, edits) ||
					got.Created != samples[from].At.Unix() {
					t.Errorf("%v by mp4box: %+v", cases[i], got)
				}
			}
		})
	}
}

// TestSpanRanges checks that any range of bytes of a Span is the same in the whole, and that a web server answers
// ranges of it.
func TestSpanRanges(t *testing.T) {
	random := seeded(t)
	track, samples := pictures(t, H264, 40)
	b, _ := write(t, track, samples, 3)
	s, err := read(t, b).Span(12, 38)
	if err != nil {
		t.Fatal(err)
	}
	whole := all(t, s)
	for range 2000 {
		from := random.Int64N(s.Size() + 1)
		p := make([]byte, random.Int64N(s.Size()+20-from))
		n, err := s.ReadAt(p, from)
		if want := min(int64(len(p)), s.Size()-from); int64(n) != want || !bytes.Equal(p[:n], whole[from:][:n]) ||
			(err == nil) != (n == len(p)) || err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes at %d: %d, want %d: %v", len(p), from, n, want, err)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Range", "bytes=1000-1999")
	answer := httptest.NewRecorder()
	http.ServeContent(answer, r, "a.mp4", time.Time{}, io.NewSectionReader(s, 0, s.Size()))
	if answer.Code != http.StatusPartialContent || !bytes.Equal(answer.Body.Bytes(), whole[1000:2000]) || answer.Header().Get("Content-Type") != "video/mp4" {
		t.Errorf("%d: %v", answer.Code, answer.Header())
	}
}

// TestSpanRefusals checks the errors of Span: no pictures, and a file that got shorter.
func TestSpanRefusals(t *testing.T) {
	track, samples := pictures(t, JPEG, 4)
	b, _ := write(t, track, samples, 2)
	f := read(t, b)
	for _, c := range [][2]int{{-1, 2}, {2, 2}, {3, 2}, {0, 5}} {
		if _, err := f.Span(c[0], c[1]); err == nil {
			t.Errorf("%v: no error", c)
		}
	}
	s, err := f.Span(0, 4)
	if err != nil {
		t.Fatal(err)
	}
	f.r = bytes.NewReader(b[:len(b)/2])
	if _, err := s.ReadAt(make([]byte, s.Size()), 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if _, err := s.ReadAt(nil, -1); err == nil {
		t.Error("no error of a negative offset")
	}
}

// zeros reads as a file of zeros.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

// TestLongSpan checks a Span of more than 4 GiB: offsets have 64 bits, and mp4box finds each sample where it is.
func TestLongSpan(t *testing.T) {
	track, samples := pictures(t, JPEG, 1)
	b, _ := write(t, track, samples, 1)
	f := read(t, b)
	f.r, f.samples = zeros{}, nil
	const n, size = 80, 100_000_000
	for i := range int64(n) {
		f.samples = append(f.samples, sample{1000 + i*(size+int64(i)%2), i * 3000, size | keyBit})
	}
	f.end = n * 3000
	s, err := f.Span(0, n)
	if err != nil || s.Size() < n*size {
		t.Fatal(s.Size(), err)
	}
	got := byMP4Box(t, save(t, s.head))[0]
	if len(got.Samples) != n {
		t.Fatalf("%d samples", len(got.Samples))
	}
	at := int64(len(s.head))
	for i, sample := range got.Samples {
		if sample[0] != at+int64(i)*size || sample[1] != size {
			t.Errorf("sample %d: %v", i, sample)
		}
	}
}
