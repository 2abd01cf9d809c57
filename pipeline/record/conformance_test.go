// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	foxglove "github.com/foxglove/mcap/go/mcap"

	"github.com/tegracast/tegracast/pipeline"
)

// coreResult is the output of testdata/core/read.mjs.
type coreResult struct {
	Warnings []string
	Refused  string // why the index could not be read
	Indexed  *struct {
		Chunks, Attachments, Statistics int
		Attachment                      string
		Messages                        []string
	}
	Streamed struct {
		Messages []string
		Done     bool
		Broken   string // the error that ended it
	}
}

// core reads a file with @mcap/core.
func core(t *testing.T, path string) (r coreResult) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "node", "read.mjs", path)
	c.Dir = filepath.Join("testdata", "core")
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil || json.Unmarshal(out, &r) != nil || errs.Len() > 0 {
		t.Fatalf("@mcap/core: %v: %s%s", err, out, errs.String())
	}
	return r
}

// ours reads a file with this package, as read.mjs does.
func ours(t *testing.T, path string) (all []string, chunks int) {
	t.Helper()
	r, err := OpenReader(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range r.Chunks {
		list, err := r.Messages(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			b, err := r.Read(m)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%d %d %d %x", m.Channel, m.Sequence, m.Log, sha256.Sum256(b)))
		}
	}
	slices.Sort(all)
	return all, len(r.Chunks)
}

// goReader reads a file with the format's own reader for Go, by its index or from its beginning, as far as possible.
func goReader(t *testing.T, path string, index bool) (all []string) {
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
	it, err := r.Messages(foxglove.UsingIndex(index))
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, _, m, err := it.NextInto(nil)
		if err != nil {
			if index && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			slices.Sort(all)
			return all
		}
		all = append(all, fmt.Sprintf("%d %d %d %x", m.ChannelID, m.Sequence, m.LogTime, sha256.Sum256(m.Data)))
	}
}

// TestOthersReadRecordings checks that @mcap/core and the Go reader read a finished file by its index and from its
// beginning, without a warning, and a truncated one up to its last complete chunk, and get the same messages as this
// package.
func TestOthersReadRecordings(t *testing.T) {
	if _, err := os.Stat("testdata/core/node_modules/@mcap/core"); err != nil {
		t.Skip("NEEDS @mcap/core, which make setup-test installs")
	}
	for _, f := range []pipeline.Format{format(t, pipeline.RGGB10, 320, 240), format(t, pipeline.UYVY, 62, 50)} {
		dir := t.TempDir()
		if _, err := record(t, Config{Directory: dir, Configuration: []byte("sources: []\n")}, f, 25, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		files, err := Files(dir, "rec")
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		want, chunks := ours(t, files[0])
		got := core(t, files[0])
		if x := got.Indexed; x == nil || x.Chunks != chunks || x.Attachments != 1 || x.Attachment != "tegracast.yaml" || x.Statistics != len(want) || len(want) < 40 {
			t.Fatalf("%+v of %d", got, chunks)
		}
		for name, list := range map[string][]string{
			"@mcap/core": got.Indexed.Messages, "@mcap/core from the beginning": got.Streamed.Messages,
			"Go": goReader(t, files[0], true), "Go from the beginning": goReader(t, files[0], false),
		} {
			if slices.Sort(list); !slices.Equal(list, want) {
				t.Errorf("%s: %d messages differ from %d", name, len(list), len(want))
			}
		}
		if len(got.Warnings) > 0 || !got.Streamed.Done {
			t.Errorf("%+v", got)
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, cut := range []int{len(b) - 1, len(b) / 2, len(b)/2 + 4096, len(b)/3 + 77} {
			path := filepath.Join(dir, "cut.mcap")
			if err := os.WriteFile(path, b[:cut], 0o600); err != nil {
				t.Fatal(err)
			}
			want, _ := ours(t, path)
			got := core(t, path)
			if slices.Sort(got.Streamed.Messages); !slices.Equal(got.Streamed.Messages, want) || len(got.Warnings) > 0 || got.Streamed.Broken != "" ||
				got.Refused == "" || len(want) == 0 {
				t.Errorf("cut at %d: %d messages, want %d: %+v", cut, len(got.Streamed.Messages), len(want), got.Warnings)
			}
			if list := goReader(t, path, false); !slices.Equal(list, want) {
				t.Errorf("cut at %d: Go reads %d messages, want %d", cut, len(list), len(want))
			}
		}
	}
}
