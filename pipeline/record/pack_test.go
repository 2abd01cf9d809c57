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
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// sensor emits frames of samples that follow from their numbers, with the CRC of an FPGA. One frame may have a sample that is too
// large.
type sensor struct {
	source
	spoiled int // its number; -1: none has
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

// recordPacked records ten frames packed, and returns the file and the recording's error.
func recordPacked(t *testing.T, f pipeline.Format, spoiled int) (path string, d *cufile.Driver, ended error) {
	t.Helper()
	log, dir := slog.New(slog.DiscardHandler), t.TempDir()
	d = storage(t)
	sink, err := New(Config{Directory: dir, Name: "rec", Source: "camera", Library: "test", Driver: d, Pack: true, Logger: log}, f)
	if err != nil {
		t.Fatal(err)
	}
	src := &sensor{source{f, slots(t, f, 2), 10, 0}, spoiled}
	_, ended = play(t, src, src.pool, sink)
	files, err := Files(dir, "rec")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	return files[0], d, ended
}

// TestPackedRecordings have every sample, in a format that the isp reads, and the FPGA's CRC of the words, which verify compares.
func TestPackedRecordings(t *testing.T) {
	for _, tt := range []struct {
		format pipeline.Format
		packed pipeline.PixelFormat
		size   int
	}{
		{format(t, pipeline.RGGB10, 640, 48), pipeline.RGGB10P, 640 * 48 * 10 / 8},
		{format(t, pipeline.Mono12, 322, 21), pipeline.Mono12P, 322 * 21 * 12 / 8},
	} {
		path, d, err := recordPacked(t, tt.format, -1)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Inspect(t.Context(), path, true, func(float64) {})
		if err != nil || !r.Good() || r.Frames != 10 || r.Checked != 10 || r.Traced != 10 || r.Image.Encoding != tt.packed.String() || r.Image.Size != tt.size ||
			r.About["unpacked"] != tt.format.Pixel.String() {
			t.Errorf("%+v, %+v, %v", r, r.Image, err)
		}
		p, err := NewPlayer([]string{path}, Position{}, Position{}, d)
		if err != nil || p.Format.Pixel != tt.packed {
			t.Fatal(p.Format, err)
		}
		samples, _ := tt.packed.Samples()
		b, got, want := memory(t, p.Format.Size()), make([]byte, tt.format.Size()), make([]byte, tt.format.Size())
		for n := range uint64(10) {
			f, err := p.Next()
			if err == nil {
				err = f.Pixels(b)
			}
			if err != nil {
				t.Fatal(err)
			}
			samples.Unpack(got, b)
			samplesOf(want, n, samples.Bits)
			var played pipeline.Frame
			if f.Fill(&played); !bytes.Equal(got, want) || played.Sequence != n || played.CRC != 0 { // of these bytes there is no CRC
				t.Errorf("frame %d is not as it was: CRC %#x", n, played.CRC)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		damagePacked(t, path)
	}
}

// damagePacked changes a bit of a frame and its chunk's CRC, so that only the FPGA's tells.
func damagePacked(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := mcap.Open(bytes.NewReader(b), int64(len(b)))
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

// TestASampleThatIsTooLargeEndsAPackedRecording, with a named error, and what was written before is readable.
func TestASampleThatIsTooLargeEndsAPackedRecording(t *testing.T) {
	path, _, err := recordPacked(t, format(t, pipeline.BGGR12, 64, 48), 6)
	if !errors.Is(err, pipeline.ErrDepth) || !strings.Contains(err.Error(), "frame 6 cannot be packed") {
		t.Errorf("%v", err)
	}
	r, err := Inspect(t.Context(), path, true, func(float64) {})
	if err != nil || !r.Good() || !r.Finished || r.Frames != 6 || r.Traced != 6 {
		t.Errorf("%+v, %v", r, err)
	}
}
