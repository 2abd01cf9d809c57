// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	foxglove "github.com/foxglove/mcap/go/mcap"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
)

// source emits frames whose bytes follow from their numbers; every tenth number is skipped.
type source struct {
	format pipeline.Format
	pool   *pipeline.Pool
	frames int
	pace   time.Duration
}

func fill(b []byte, n uint64) {
	for i := range b {
		b[i] = byte(uint64(i)*7 + n*13 + uint64(i)>>8)
	}
}

func (s *source) Format() pipeline.Format       { return s.format }
func (s *source) Status() pipeline.SourceStatus { return pipeline.SourceStatus{} }
func (s *source) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	n := uint64(0)
	for range s.frames {
		f, err := s.pool.Wait(ctx)
		if err != nil {
			return nil
		}
		if ctx.Err() != nil {
			f.Release()
			return nil
		}
		if n%10 == 9 {
			n++
		}
		fill(f.Bytes, n)
		f.Sequence = n
		f.Times.ExposureStart, f.Times.Captured = time.Unix(1700000000, int64(n)), time.Unix(1700000001, int64(n))
		f.Results = append(f.Results, pipeline.Result{Stage: "motion", Numbers: map[string]float64{"n": float64(n)}})
		n++
		emit(f)
		time.Sleep(s.pace)
	}
	return nil
}

func memory(t testing.TB, size int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b[:size]
}

// record records the given number of frames, and returns the output's statistics and the error that ended it.
func record(t *testing.T, c Config, f pipeline.Format, frames int, pace time.Duration) (pipeline.OutputStats, error) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	d := storage(t)
	c.Name, c.Source, c.Library, c.Driver, c.Logger = "rec", "camera", "test", d, log
	sink, err := New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	src := &source{f, slots(t, f, 4), frames, pace}
	return play(t, src, src.pool, sink)
}

func format(t testing.TB, p pipeline.PixelFormat, width, height int) pipeline.Format {
	t.Helper()
	f, err := pipeline.NewFormat(p, width, height, pipeline.Rate{Num: 100, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestARecordingHasEveryFrame records files of a few frames each, and reads them with the format's own reader, with the
// note of each frame.
func TestARecordingHasEveryFrame(t *testing.T) {
	for _, f := range []pipeline.Format{format(t, pipeline.RGGB10, 640, 480), format(t, pipeline.Grey, 62, 3), format(t, pipeline.UYVY, 322, 201)} {
		dir := t.TempDir()
		c := Config{Directory: dir, Size: 10 * int64(f.Size()), Configuration: []byte("sources: []\n"), Sync: time.Millisecond}
		st, err := record(t, c, f, 57, 3*time.Millisecond)
		if err != nil || st.Delivered != 57 {
			t.Fatalf("%+v, %v", st, err)
		}
		files, err := Files(dir, "rec")
		if err != nil || f.Size() > 100_000 && len(files) < 4 {
			t.Fatalf("files %v, %v", files, err)
		}
		n, frames := uint64(0), 0
		for _, path := range files {
			frames += checkFile(t, path, f, &n)
		}
		if frames != 57 {
			t.Errorf("%d frames", frames)
		}
	}
}

func checkFile(t *testing.T, path string, f pipeline.Format, n *uint64) (frames int) {
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
	info, err := r.Info()
	if err != nil || len(info.AttachmentIndexes) != 1 || info.Statistics.ChunkCount != uint32(info.Statistics.ChannelMessageCounts[1]) {
		t.Fatalf("%s: %+v, %v", path, info, err)
	}
	it, err := r.Messages()
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, f.Size())
	for {
		schema, _, m, err := it.NextInto(nil)
		if errors.Is(err, io.EOF) {
			return frames
		}
		if err != nil {
			t.Fatal(err)
		}
		if schema.Name == "tegracast/Frame" {
			var note Note
			if err := json.Unmarshal(m.Data, &note); err != nil || note.Results[0].Numbers["n"] != float64(note.Frame) || note.Captured-note.ExposureStart != 1e9 {
				t.Fatalf("%s: %v", m.Data, err)
			}
			if lost := uint64(0); note.Frame%10 == 0 && note.Frame > 0 {
				lost = 1
				if note.Lost != lost {
					t.Errorf("frame %d: %d lost", note.Frame, note.Lost)
				}
			}
			continue
		}
		i, err := ParseImage(m.Data[:min(len(m.Data), 200)], len(m.Data))
		if err != nil {
			t.Fatal(err)
		}
		if *n%10 == 9 {
			*n++
		}
		fill(want, *n)
		if i.Height != f.Height || i.Width != f.Width || i.Step != f.Stride || i.Encoding != Encoding(f.Pixel) || i.FrameID != "camera" ||
			!i.At.Equal(time.Unix(1700000000, int64(*n))) || !bytes.Equal(m.Data[i.Pixels:], want) {
			t.Fatalf("frame %d: %+v", *n, i)
		}
		*n++
		frames++
	}
}

// TestFilesOfOneMoment checks that they have different names.
func TestFilesOfOneMoment(t *testing.T) {
	d := storage(t)
	c := Config{Directory: t.TempDir(), Name: "rec", Source: "camera", Driver: d, Logger: slog.New(slog.DiscardHandler)}
	s, err := New(c, format(t, pipeline.Grey, 64, 4))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for range 3 {
		g, err := s.newSegment(now)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.end(); err != nil {
			t.Error(err)
		}
	}
	if files, err := Files(c.Directory, "rec"); err != nil || len(files) != 3 {
		t.Errorf("%v, %v", files, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestOldFilesAreDeleted checks that as many files are kept as there is room for.
func TestOldFilesAreDeleted(t *testing.T) {
	f, dir := format(t, pipeline.RGGB10, 640, 480), t.TempDir()
	other := filepath.Join(dir, "rec-notes.mcap")
	if err := os.WriteFile(other, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := record(t, Config{Directory: dir, Size: 2 * int64(f.Size()), Keep: Retention{Size: 11 * int64(f.Size())}}, f, 40, 3*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	files, err := Files(dir, "rec")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	total, last := int64(0), int64(0)
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		last = info.Size()
		total += last
	}
	if keep := 11 * int64(f.Size()); total-2*last > keep || total+last <= keep { // the last one, and one that is being finished, do not count
		t.Errorf("%d bytes in %d files, the last has %d: %d are to be kept", total, len(files), last, keep)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a file of somebody else's: %v", err)
	}
}

// TestOthersFilesAreNoOldRecordings: in a folder of everybody another user's files do not have the recordings deleted.
func TestOthersFilesAreNoOldRecordings(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NEEDS root, to give a file to another user")
	}
	f, dir := format(t, pipeline.RGGB10, 640, 480), t.TempDir()
	keep := 5 * int64(f.Size())
	if err := unix.Chmod(dir, 0o777|unix.S_ISVTX); err != nil {
		t.Fatal(err)
	}
	planted := func(day int) string { return filepath.Join(dir, fmt.Sprintf("rec-209901%02dT000000000Z.mcap", day)) }
	if err := errors.Join(os.WriteFile(planted(1), make([]byte, keep), 0o600), os.Chown(planted(1), 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	for day := 2; day < 20; day++ {
		if err := os.Link(planted(1), planted(day)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := record(t, Config{Directory: dir, Size: 2 * int64(f.Size()), Keep: Retention{Size: keep}}, f, 40, 3*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	files, err := Files(dir, "rec")
	if own := len(files) - 19; err != nil || own < 2 || own > 4 {
		t.Errorf("%d files, %v: %v", len(files), err, files)
	}
}
