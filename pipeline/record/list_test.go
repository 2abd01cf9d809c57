// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// listed lists a file.
func listed(t *testing.T, path string) Entry {
	t.Helper()
	e, err := List(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestList covers files of every state. The middle of a finished file is overwritten, which must not matter, because it
// is not read.
func TestList(t *testing.T) {
	dir := t.TempDir()
	var growing Entry
	_, err := recordStepped(t, Config{Directory: dir}, 30, func(*Sink) {}, func(_ *Sink, n int) {
		if files, _ := Files(dir, "rec"); n == 20 && len(files) == 1 {
			for growing = listed(t, files[0]); growing.Frames < 10; { // the newest frames are still being written
				growing = listed(t, files[0])
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	paths, err := Files(dir, "rec")
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	whole, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if e := growing; e.State != BeingWritten || e.Frames > 21 || e.Error != "" || e.Width != 64 || !e.First.Equal(moment(0)) ||
		!e.Last.Equal(moment(e.Frames-1)) || e.Bytes < int64(10*64*96) {
		t.Errorf("growing: %+v", e)
	}
	put := func(name string, b []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	middle, index, torn := bytes.Clone(whole), bytes.Clone(whole), bytes.Clone(whole[:len(whole)/2])
	clear(middle[len(whole)/3 : len(whole)/2])
	index[len(index)-100] ^= 1
	clear(torn[len(torn)/2 : len(torn)/2+8192])
	for name, tt := range map[string]struct {
		path   string
		state  FileState
		frames int // at least half of it if it is not finished
		says   string
	}{
		"whole":    {paths[0], Finished, 30, ""},
		"middle":   {put("front-gate-20261124T063302933Z.mcap", middle), Finished, 30, ""},
		"cut":      {put("front-gate-20261124T063302934Z.mcap", whole[:len(whole)-10]), NotFinished, 30, ""},
		"half":     {put("front-gate-ring.mcap", whole[:len(whole)/2]), NotFinished, 15, ""},
		"index":    {put("index.mcap", index), NotFinished, 30, "its index has CRC"},
		"torn":     {put("torn.mcap", torn), NotFinished, 15, "bytes are skipped"},
		"head":     {put("head.mcap", whole[:4096]), NotFinished, 0, ""},
		"foreign":  {filepath.Join(foreignFiles(t), "chunks.mcap"), Finished, 5, ""},
		"no index": {filepath.Join(foreignFiles(t), "no-index.mcap"), Finished, 5, ""},
		"empty":    {put("empty.mcap", nil), "", 0, "not an MCAP file: it is empty"},
		"text":     {put("text.mcap", []byte("something else")), "", 0, "not an MCAP file"},
		"none":     {filepath.Join(dir, "none.mcap"), "", 0, "no such file"},
		"folder":   {dir, "", 0, "is a directory"},
	} {
		e := listed(t, tt.path)
		least := tt.frames
		if tt.state == NotFinished {
			least /= 2
		}
		if e.State != tt.state || e.Frames > tt.frames || e.Frames < least || (tt.says == "") != (e.Error == "") || !strings.Contains(e.Error, tt.says) {
			t.Errorf("%s: %+v, want %+v", name, e, tt)
		}
		if e.Path != tt.path || tt.frames > 0 && (e.Bytes == 0 || e.First.IsZero() || e.Last.Before(e.First) || e.Encoding == "") {
			t.Errorf("%s: %+v", name, e)
		}
		if name == "middle" && (!e.Last.Equal(moment(29)) || !e.First.Equal(moment(0))) {
			t.Errorf("%s: %v to %v", name, e.First, e.Last)
		}
	}
	for name, want := range map[string]string{
		"/x/front-gate-20261124T063302933Z.mcap": "front-gate", "front-gate-ring.mcap": "front-gate", "event.mcap": "event", "a-b.mcap": "a-b",
		"front-20261124T063302933Z-20261124T063302933Z.mcap": "front-20261124T063302933Z", "x": "x",
	} {
		if got := outputOf(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	if _, err := List(ctx, paths[0]); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
