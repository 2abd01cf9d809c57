// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// TestSettings checks that settings are in each file, at its beginning and when they have changed, also in a triggered
// file.
func TestSettings(t *testing.T) {
	for _, window := range []*Window{nil, {100 * time.Millisecond, time.Hour, nil}} {
		dir, exposure := t.TempDir(), time.Duration(0)
		c := Config{Directory: dir, Window: window, Settings: func() (Settings, bool) { // called only by the sink's goroutine
			exposure += time.Millisecond
			return Settings{Exposure: exposure, Gain: 2}, true
		}}
		_, err := recordStepped(t, c, 60, func(*Sink) {}, func(s *Sink, n int) {
			if n == 30 && window != nil {
				if err := s.Trigger(Trigger{Cause: "test"}); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(25 * time.Millisecond)
		})
		if err != nil {
			t.Fatal(err)
		}
		files, err := Files(dir, "rec")
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v", files, err)
		}
		r, err := Inspect(t.Context(), files[0], true, func(float64) {})
		sorted := func(a, b Settings) int { return int(a.Exposure - b.Exposure) }
		if err != nil || len(r.Settings) < 1 || window == nil && len(r.Settings) < 2 || !slices.IsSortedFunc(r.Settings, sorted) {
			t.Errorf("%+v, %v", r, err)
		}
		file, err := OpenReader(t.Context(), files[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		before := time.Duration(0)
		for i := range file.Chunks {
			f, err := file.Frame(i, 0)
			if errors.Is(err, errNoImage) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if s := f.Settings(); s.Exposure < max(before, 1) || s.Gain != 2 {
				t.Errorf("frame %d: %+v, after %v", f.Note.Frame, s, before)
			} else {
				before = s.Exposure
			}
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTheFPGAsCRCIsCompared checks that a wrong pixel is found even if the chunk's own CRC is correct.
func TestTheFPGAsCRCIsCompared(t *testing.T) {
	dir := t.TempDir()
	if _, err := recordStepped(t, Config{Directory: dir}, 20, func(*Sink) {}, func(*Sink, int) {}); err != nil {
		t.Fatal(err)
	}
	files, err := Files(dir, "rec")
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	f, err := mcap.Open(t.Context(), strings.NewReader(string(b)), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	chunk := b[f.Chunks[7].Offset : f.Chunks[7].Offset+f.Chunks[7].Length]
	chunk[page+100] ^= 1
	binary.LittleEndian.PutUint32(chunk[33:], crc32.ChecksumIEEE(chunk[49:]))
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Inspect(t.Context(), files[0], true, func(float64) {})
	if err != nil || r.Checked != 20 || r.Traced != 19 || len(r.Wrong) != 1 || !strings.Contains(r.Wrong[0], "the pixels of frame 7 have CRC-32C") {
		t.Errorf("%+v, %v", r, err)
	}
}
