// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// smallRecording makes a recording of frames of 512 bytes, and returns its path and its frames' pixels by number.
func smallRecording(t *testing.T, d *cufile.Driver) (path string, want map[uint64]string) {
	t.Helper()
	dir := t.TempDir()
	c := Config{Directory: dir, Configuration: []byte("sources: []\n")}
	f := format(t, pipeline.Grey, 32, 16)
	if _, err := record(t, c, f, 12, 2*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	files, err := Files(dir, "rec")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	want, lost, err := plays(files[0], d)
	if err != nil || lost != nil || len(want) != 12 {
		t.Fatal(len(want), lost, err)
	}
	return files[0], want
}

// plays plays a file. err is returned if the file cannot be played, lost contains the errors of frames.
func plays(path string, d *cufile.Driver) (got map[uint64]string, lost, err error) {
	p, err := NewPlayer(context.Background(), []string{path}, Position{}, Position{}, d)
	if err != nil {
		return nil, nil, err
	}
	lost = errors.Join(p.Trouble...)
	b, err := unix.Mmap(-1, 0, max(page, p.Format.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = unix.Munmap(b) }()
	got = map[uint64]string{}
	for {
		f, err := p.Next()
		if errors.Is(err, ErrEnd) {
			return got, lost, p.Close()
		}
		if err == nil {
			err = f.Pixels(b)
		}
		if err != nil {
			lost = errors.Join(lost, err)
			continue
		}
		got[f.Note.Frame] = string(b[:f.Image.Size])
	}
}

// judge inspects and plays a damaged file: the frames played must be those recorded, and if some are missing, that must
// be reported.
func judge(t *testing.T, path string, d *cufile.Driver, want map[uint64]string, what string, at int) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, failed := Inspect(t.Context(), path, true, func(float64) {})
	got, lost, err := plays(path, d)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%s at byte %d: %d bytes of memory", what, at, n)
	}
	for n, pixels := range got {
		if want[n] != pixels {
			t.Fatalf("%s at byte %d: frame %d is played with other bytes", what, at, n)
		}
	}
	if len(got) == len(want) {
		return
	}
	if failed == nil && r.Good() && (r.Finished || r.Readable == r.Bytes && what != "cut") {
		t.Fatalf("%s at byte %d: %d frames of %d, and nobody says so: %+v", what, at, len(got), len(want), r)
	}
	if said := errors.Join(failed, lost, err); said == nil && r.Finished {
		t.Fatalf("%s at byte %d: the player has %d frames, and is silent", what, at, len(got))
	}
}

// stride returns 1 in a long run, otherwise short.
func stride(short int) int {
	if os.Getenv("TEGRACAST_LONG") != "" {
		return 1
	}
	return short
}

func disk(t testing.TB) *cufile.Driver {
	t.Helper()
	d, err := cufile.Open(cufile.Config{Settings: cufile.DefaultSettings(), Access: cufile.Buffered, Calls: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestBadInputFlipped flips bytes of the first 64 KiB, with and without an index.
func TestBadInputFlipped(t *testing.T) {
	d := disk(t)
	path, want := smallRecording(t, d)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{len(b), len(b) - 1} {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := file.Truncate(int64(size)); err != nil {
			t.Fatal(err)
		}
		put := func(v byte, at int) {
			if _, err := file.WriteAt([]byte{v}, int64(at)); err != nil {
				t.Fatal(err)
			}
		}
		for at := 0; at < min(size, 64<<10); at += stride(61) {
			put(^b[at], at)
			judge(t, path, d, want, "flipped", at)
			put(b[at], at)
		}
	}
}

// TestBadInputCut truncates a recording everywhere.
func TestBadInputCut(t *testing.T) {
	d := disk(t)
	path, want := smallRecording(t, d)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := int(info.Size()) - 1; at >= 0; at -= stride(97) {
		if err := os.Truncate(path, int64(at)); err != nil {
			t.Fatal(err)
		}
		judge(t, path, d, want, "cut", at)
	}
}

// TestBadInputHuge tests records, chunks, messages, texts and an index that claim to have a terabyte, in a file of that
// size.
func TestBadInputHuge(t *testing.T) {
	const tera = 1 << 40
	d := disk(t)
	path, _ := smallRecording(t, d)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenReader(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	chunk := int(r.Chunks[0].Offset)
	list, err := r.frames(0)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]int{
		"the header": len(mcap.Magic) + 1, "a chunk": chunk + 1, "a chunk's size": chunk + 25, "a chunk's records": chunk + 41,
		"an image": int(list[0].image.Offset) - 30, "a note": int(list[0].note.Offset) - 30, "the index": len(b) - len(mcap.Magic) - 20,
	} {
		for _, finished := range []bool{true, false} {
			huge := filepath.Join(t.TempDir(), "huge.mcap")
			spoiled := bytes.Clone(b)
			size, end := int64(2*tera), int64(0)
			binary.LittleEndian.PutUint64(spoiled[at:], tera)
			file, err := os.Create(huge)
			if err == nil {
				_, err = file.WriteAt(spoiled, 0)
			}
			if finished && err == nil { // the end must be where a reader looks for it
				end = size - int64(len(b))
				_, err = file.WriteAt(spoiled[len(b)-1000:], size-1000)
			}
			if err == nil {
				err = file.Truncate(size)
			}
			if err := errors.Join(err, file.Close()); errors.Is(err, unix.EFBIG) {
				t.Skipf("NEEDS a file system with files of %d bytes: %v", size, err)
			} else if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			report, err := Inspect(t.Context(), huge, false, func(float64) {})
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 200<<20 {
				t.Errorf("%s, end at %d: %d bytes of memory", name, end, n)
			}
			if err == nil && report.Good() && report.Finished {
				t.Errorf("%s: %+v", name, report)
			}
			_, _, _ = plays(huge, d)
		}
	}
}

// TestAChunkWithoutAFrameIsSkipped checks that such a chunk does not count as a lost frame.
func TestAChunkWithoutAFrameIsSkipped(t *testing.T) {
	gray := format(t, pipeline.Grey, 4, 2)
	w, b, err := mcap.NewWriter("ros2", "x", page, []mcap.Schema{{ID: 1, Name: imageName}, {ID: 3, Name: "other"}}, []mcap.Channel{
		{ID: 1, Schema: 1, Metadata: map[string]string{"pixels": "GREY"}}, {ID: 3, Schema: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint32(3) {
		prefix, pixels := appendImage(nil, gray, time.Unix(1, 0), "x", 8), make([]byte, 8)
		for _, m := range []mcap.Message{{Channel: 3, Log: 7}, {Channel: 1, Sequence: n, Log: 1e9 * uint64(n+1)}} {
			head, tail, _, err := w.Frame(nil, nil, page, m, prefix, pixels, nil)
			if err != nil {
				t.Fatal(err)
			}
			b = append(append(b, head...), tail...)
		}
	}
	path := filepath.Join(t.TempDir(), "x.mcap")
	if err := os.WriteFile(path, w.End(b), 0o600); err != nil {
		t.Fatal(err)
	}
	got, lost, err := plays(path, disk(t))
	if err != nil || lost != nil || len(got) != 3 {
		t.Errorf("%d frames, %v, %v", len(got), lost, err)
	}
	p, err := NewPlayer(t.Context(), []string{path}, At(time.Second), Position{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := p.Next(); err != nil || f.Note.Frame != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestHolesAreNotRead: messages that are holes of a file, which cost its maker nothing, are not read into memory.
func TestHolesAreNotRead(t *testing.T) {
	_, head, err := mcap.NewWriter("", "", page, []mcap.Schema{{ID: 1, Name: imageName}, {ID: 2, Name: noteName}, {ID: 3, Name: triggerName}},
		[]mcap.Channel{{ID: 1, Schema: 1, Metadata: map[string]string{"pixels": "GREY"}}, {ID: 2, Schema: 2}, {ID: 3, Schema: 3}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "holes.mcap")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	at := int64(0)
	write := func(b []byte, hole int) {
		if _, err := file.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
		at += int64(len(b) + hole)
	}
	message := func(channel uint16, data []byte, hole int) {
		b := binary.LittleEndian.AppendUint64([]byte{byte(mcap.OpMessage)}, uint64(2+4+8+8+len(data)+hole))
		b = binary.LittleEndian.AppendUint16(b, channel)
		write(append(append(b, make([]byte, 4+8+8)...), data...), hole)
	}
	write(head, 0)
	large := format(t, pipeline.Grey, 32768, 32768)
	message(1, appendImage(nil, large, time.Unix(1, 0), "camera", large.Size()), large.Size())
	message(2, nil, 100<<20)
	message(3, nil, 100<<20)
	write(mcap.AppendPadding(nil, page), 0)
	r, err := Inspect(t.Context(), path, false, func(float64) {})
	if err != nil || len(r.Wrong) != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, wrong := range r.Wrong {
		if !strings.Contains(wrong, "the file is damaged: the message at byte") {
			t.Errorf("message %d: %s", i, wrong)
		}
	}
	if _, err := OpenReader(t.Context(), path, nil); !errors.Is(err, mcap.ErrDamaged) {
		t.Errorf("it can be played: %v", err)
	}
}

// FuzzReader reads frames of whatever, and makes a slice of them.
func FuzzReader(f *testing.F) {
	_, b, err := mcap.NewWriter("ros2", "x", page, []mcap.Schema{{ID: 1, Name: imageName}, {ID: 2, Name: noteName}}, []mcap.Channel{
		{ID: imageChannel, Schema: 1, Metadata: map[string]string{"pixels": "GREY", "rate": "30"}}, {ID: noteChannel, Schema: 2},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	w, b, _ := mcap.NewWriter("ros2", "x", page, []mcap.Schema{{ID: 1, Name: imageName}, {ID: 2, Name: noteName}}, []mcap.Channel{
		{ID: imageChannel, Schema: 1, Metadata: map[string]string{"pixels": "GREY", "rate": "30"}}, {ID: noteChannel, Schema: 2},
	})
	gray := format(f, pipeline.Grey, 4, 2)
	head, tail, _, err := w.Frame(nil, nil, page, mcap.Message{Channel: imageChannel}, appendImage(nil, gray, time.Unix(1, 0), "x", 8), make([]byte, 8),
		[]mcap.Part{{Message: mcap.Message{Channel: noteChannel}, Data: []byte(`{"frame":1,"captured":1,"lost":0}`)}})
	if err != nil {
		f.Fatal(err)
	}
	b = append(append(b, head...), tail...)
	f.Add(b)
	f.Add(append(b, w.End(nil)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := newReader(t.Context(), "x", bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		var slice *Slice
		for i := range r.Chunks {
			for n := range r.count(i) {
				frame, err := r.Frame(i, n)
				if err != nil {
					continue
				}
				pixels := make([]byte, frame.Image.Size)
				if err := r.ReadInto(pixels, frame.message, int64(frame.Image.Pixels)); err != nil || frame.Image.Size != r.Format.Size() {
					t.Errorf("frame %d of chunk %d: %+v, %v", n, i, frame.Image, err)
				}
				if slice == nil {
					if slice, err = NewSlice(io.Discard, frame); err != nil {
						return
					}
				}
				_ = slice.Add(frame, pixels)
				r.find(frame.Note.Frame)
			}
		}
	})
}
