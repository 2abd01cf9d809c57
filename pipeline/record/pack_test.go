// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// sensor emits frames whose samples follow from their numbers, with the CRC of an FPGA. One frame may have a sample
// that is too large.
type sensor struct {
	source
	spoiled int // number of that frame; -1: none
}

func samplesOf(b []byte, n uint64, bits int) {
	for i := 0; i < len(b); i += 2 {
		binary.LittleEndian.PutUint16(b[i:], uint16((uint64(i)*2654435761+n*40503)>>3)&(1<<bits-1))
	}
}

func (s *sensor) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	about, _ := s.format.Pixel.Samples()
	for n := range s.frames {
		f, err := s.pool.Wait(ctx)
		if err != nil {
			return nil
		}
		samplesOf(f.Bytes, uint64(n), about.Bits)
		if n == s.spoiled {
			f.Bytes[len(f.Bytes)-1] |= 0x80
		}
		f.Sequence, f.Times.ExposureStart, f.CRC = uint64(n), moment(n), crc32.Checksum(f.Bytes, crc32.MakeTable(crc32.Castagnoli))
		emit(f)
	}
	return nil
}

// recordPacked makes a packed recording, and returns its files and its error. The triggers are at the times of the
// given frames.
func recordPacked(t *testing.T, c Config, f pipeline.Format, frames, spoiled int, triggers ...int) (files []string, d *cufile.Driver, ended error) {
	t.Helper()
	d = storage(t)
	c.Directory, c.Name, c.Source, c.Library, c.Driver, c.Pack, c.Logger = t.TempDir(), "rec", "camera", "test", d, true, slog.New(slog.DiscardHandler)
	sink, err := New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range triggers {
		if err := sink.Trigger(Trigger{Cause: "test", At: moment(n)}); err != nil {
			t.Fatal(err)
		}
	}
	src := &sensor{source{f, slots(t, f, 2), frames, 0}, spoiled}
	_, ended = play(t, src, src.pool, sink)
	if files, err = Files(c.Directory, "rec"); err != nil {
		t.Fatal(err)
	}
	return files, d, ended
}

// playedPacked plays files, and compares the frames, which must have the given numbers, with the words of the sensor.
func playedPacked(t *testing.T, files []string, d *cufile.Driver, words pipeline.Format, packed pipeline.PixelFormat, numbers []int) {
	t.Helper()
	p, err := NewPlayer(t.Context(), files, Position{}, Position{}, d)
	if err != nil || p.Format.Pixel != packed {
		t.Fatal(files, err)
	}
	samples, _ := packed.Samples()
	b, got, want := memory(t, p.Format.Size()), make([]byte, words.Size()), make([]byte, words.Size())
	for _, n := range numbers {
		f, err := p.Next()
		if err == nil {
			err = f.Pixels(b)
		}
		if err != nil {
			t.Fatal(n, err)
		}
		samples.Unpack(got, b)
		samplesOf(want, uint64(n), samples.Bits)
		var played pipeline.Frame
		if f.Fill(&played); !bytes.Equal(got, want) || played.Sequence != uint64(n) || played.CRC != 0 { // there is no CRC of the packed bytes
			t.Fatalf("frame %d is not as it was: number %d, CRC %#x", n, played.Sequence, played.CRC)
		}
	}
	if _, err := p.Next(); !errors.Is(err, ErrEnd) {
		t.Errorf("behind the last frame: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// numbers returns the numbers from from (inclusive) to to (exclusive).
func numbers(from, to int) (list []int) {
	for ; from < to; from++ {
		list = append(list, from)
	}
	return list
}

// TestPackedRecordings checks that they contain every sample, in a format that the isp reads, and the FPGA's CRC of the
// words, which verify compares.
func TestPackedRecordings(t *testing.T) {
	for _, tt := range []struct {
		format pipeline.Format
		packed pipeline.PixelFormat
		size   int
	}{
		{format(t, pipeline.RGGB10, 640, 48), pipeline.RGGB10P, 640 * 48 * 10 / 8},
		{format(t, pipeline.Mono12, 322, 21), pipeline.Mono12P, 322 * 21 * 12 / 8},
	} {
		files, d, err := recordPacked(t, Config{}, tt.format, 10, -1)
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		r, err := Inspect(t.Context(), files[0], true, func(float64) {})
		if err != nil || !r.Good() || r.Frames != 10 || r.Checked != 10 || r.Traced != 10 || r.Image.Encoding != tt.packed.String() || r.Image.Size != tt.size ||
			r.About["unpacked"] != tt.format.Pixel.String() {
			t.Errorf("%+v, %+v, %v", r, r.Image, err)
		}
		playedPacked(t, files, d, tt.format, tt.packed, numbers(0, 10))
		damagePacked(t, files[0])
	}
}

// TestPackedRecordingsAroundTriggers checks that they contain exactly the requested frames, bit for bit: for a first
// window, for two that overlap, and for one soon after these, whose first frames are copied from the previous file.
func TestPackedRecordingsAroundTriggers(t *testing.T) {
	f := format(t, pipeline.RGGB10, 640, 48)
	c := Config{Window: &Window{Before: 300 * time.Millisecond, After: 100 * time.Millisecond}}
	files, d, err := recordPacked(t, c, f, 700, -1, 250, 500, 530, 575)
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	want := [][]int{numbers(220, 261), numbers(470, 541), numbers(545, 586)}
	for i, path := range files {
		r, err := Inspect(t.Context(), path, true, func(float64) {})
		if n := len(want[i]); err != nil || !r.Good() || !r.Finished || r.Checked != n || r.Traced != n || r.Lost != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		playedPacked(t, files[i:i+1], d, f, pipeline.RGGB10P, want[i])
	}
	playedPacked(t, files, d, f, pipeline.RGGB10P, slices.Concat(want...))
}

// damagePacked changes a bit of a frame and its chunk's CRC, so that only the FPGA's CRC reveals it.
func damagePacked(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := mcap.Open(t.Context(), bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	chunk := b[f.Chunks[3].Offset:][:f.Chunks[3].Length]
	chunk[page+100] ^= 1
	binary.LittleEndian.PutUint32(chunk[33:], crc32.ChecksumIEEE(chunk[49:]))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Inspect(t.Context(), path, true, func(float64) {})
	if err != nil || r.Traced != 9 || len(r.Wrong) != 1 || !strings.Contains(r.Wrong[0], "the pixels of frame 3 have CRC-32C") {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestASampleThatIsTooLargeEndsAPackedRecording checks that it ends with a named error, and that what was written
// before is readable.
func TestASampleThatIsTooLargeEndsAPackedRecording(t *testing.T) {
	files, _, err := recordPacked(t, Config{}, format(t, pipeline.BGGR12, 64, 48), 10, 6)
	if len(files) != 1 || !errors.Is(err, pipeline.ErrDepth) || !strings.Contains(err.Error(), "frame 6 cannot be packed") {
		t.Fatal(files, err)
	}
	r, err := Inspect(t.Context(), files[0], true, func(float64) {})
	if err != nil || !r.Good() || !r.Finished || r.Frames != 6 || r.Traced != 6 {
		t.Errorf("%+v, %v", r, err)
	}
}
