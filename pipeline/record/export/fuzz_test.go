// SPDX-License-Identifier: Apache-2.0

package export

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// unchecked removes the CRCs from the chunks of a recording (MCAP's specification, "Chunk"), so that damage in them
// reaches the code that reads them.
func unchecked(b []byte) []byte {
	const magic, head, chunk, crcAt = 8, 9, 6, 24
	for at := magic; at+head <= len(b); at += head + int(binary.LittleEndian.Uint64(b[at+1:])) {
		if b[at] == chunk {
			clear(b[at+head+crcAt:][:4])
		}
	}
	return b
}

// FuzzExport exports a damaged recording in every format that needs no other program. It may only succeed or return an
// error, and must not export more frames than the recording has bytes.
func FuzzExport(f *testing.F) {
	d := driver(f)
	for _, pixel := range []pipeline.PixelFormat{pipeline.RGGB10, pipeline.UYVY, pipeline.Grey} {
		path, _, _ := recorded(f, d, pixel, 8, 4)
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		b = unchecked(b)
		f.Add(b)
		f.Add(b[:len(b)/2]) // without its index
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		folder := t.TempDir()
		path := filepath.Join(folder, "r.mcap")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"mcap", "y4m", "png", "dng"} {
			c := Config{Files: []string{path}, Format: format, Out: filepath.Join(folder, format), Driver: d}
			if res, err := Run(t.Context(), c, func(float64) {}); err == nil && res.Frames > len(b) {
				t.Errorf("%s: %d frames of %d bytes", format, res.Frames, len(b))
			}
		}
	})
}
