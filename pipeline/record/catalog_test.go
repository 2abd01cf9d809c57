// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost/cufile/hangtest"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// cataloged returns recordings of 95 pictures in files of 30, of which the last one is being written, and their names
// from the newest to the oldest.
func cataloged(t *testing.T, told func(News)) (all *Recordings, v *Video, dir string, names []string) {
	t.Helper()
	dir, all = t.TempDir(), &Recordings{}
	v = startVideo(t, VideoConfig{Directory: dir, Duration: 25 * testPeriod, Told: told})
	all.Add(v)
	for n := range uint64(95) {
		offer(v, n)
	}
	await(t, func() bool { return v.frames.Load() == 95 }) // the newest ones, since no others come
	paths, err := filesOf(dir, "rec", VideoExtension)
	if err != nil || len(paths) != 4 {
		t.Fatal(paths, err)
	}
	for _, p := range slices.Backward(paths) {
		names = append(names, filepath.Base(p))
	}
	return all, v, dir, names
}

// catalogNames returns the names of the files of a catalog.
func catalogNames(t *testing.T, all *Recordings, before string, most int) (names []string, c Catalog) {
	t.Helper()
	c, err := all.Catalog(before, most)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Files {
		names = append(names, filepath.Base(f.Path))
	}
	return names, c
}

// TestCatalog checks that a catalog has the files of recordings, and no others, with what they contain, in parts of any
// length, and that what was read once is not read again.
func TestCatalog(t *testing.T) {
	all, v, dir, names := cataloged(t, nil)
	for _, other := range []string{"rec-20261124T063302933Z.mp4", "rec-.mp4", "x-20261124T063302933Z.mp4", "rec-99999999T999999999Z.mp4"} {
		if err := os.WriteFile(filepath.Join(dir, other), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, c := catalogNames(t, all, "", 10)
	if !slices.Equal(got, names) || c.More {
		t.Fatalf("%v %v, want %v", got, c.More, names)
	}
	if f := c.Files[0]; f.State != BeingWritten || f.Frames != 0 || f.Bytes == 0 || f.Output != "rec" || time.Since(f.Begun) > time.Minute {
		t.Errorf("growing: %+v", f)
	}
	if f := c.Files[1]; f.State != Finished || f.Frames != 30 || f.FirstFrame != 1060 || f.LastFrame != 1089 || f.Encoding != "h264" ||
		f.Width != 1920 || f.Last.Sub(f.First).Round(time.Millisecond) != 29*testPeriod {
		t.Errorf("finished: %+v", f)
	}
	if d := c.Folders; len(d) != 1 || d[0].Path != dir || d[0].Free <= 0 || d[0].Total < d[0].Free || d[0].Err != nil {
		t.Errorf("%+v", d)
	}
	for before, i := "", 0; i < len(names); i += 3 {
		part, c := catalogNames(t, all, before, 3)
		if want := names[i:min(i+3, len(names))]; !slices.Equal(part, want) || c.More != (i == 0) {
			t.Errorf("before %q: %v, %v, want %v", before, part, c.More, want)
		}
		before = part[len(part)-1]
	}
	if _, err := all.Catalog("../rec", 3); !errors.Is(err, ErrNoFile) {
		t.Error(err)
	}
	stayed := filepath.Join(dir, names[1])
	info, err := os.Stat(stayed)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(stayed, make([]byte, info.Size()), 0o600), os.Chtimes(stayed, time.Time{}, info.ModTime())); err != nil {
		t.Fatal(err)
	}
	if _, c = catalogNames(t, all, "", 10); c.Files[1].Frames != 30 {
		t.Errorf("a file that has the same size and time was read again: %+v", c.Files[1])
	}
	if err := errors.Join(v.Close(), all.Remove(v)); err != nil {
		t.Fatal(err)
	}
	if _, c = catalogNames(t, all, "", 10); c.Files[0].State != Finished || c.Files[0].Frames != 5 {
		t.Errorf("of a recording that was removed: %+v", c.Files[0])
	}
	all.Retain(func(string) bool { return false })
	if got, _ = catalogNames(t, all, "", 10); len(got) > 0 {
		t.Errorf("of a recording that was forgotten: %v", got)
	}
}

// TestAnotherFormat checks that the files of a recording whose format was changed can still be listed, played and deleted.
func TestAnotherFormat(t *testing.T) {
	all, v, dir, names := cataloged(t, nil)
	if err := all.Remove(v); err != nil {
		t.Fatal(err)
	}
	other := startVideo(t, VideoConfig{Directory: dir, MCAP: true})
	all.Add(other)
	for n := range uint64(5) {
		offer(other, n)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	now, c := catalogNames(t, all, "", 10)
	if len(now) != 5 || !slices.Equal(now[1:], names) || filepath.Ext(now[0]) != Extension || c.Files[1].Frames != 5 {
		t.Fatalf("%+v", c)
	}
	checkClip(t, names[1], opened(t, all, names[1]), 1060, 1089)
	if err := errors.Join(all.Delete(names[1], "a test"), all.Delete(now[0], "a test")); err != nil {
		t.Error(err)
	}
	if now, _ = catalogNames(t, all, "", 10); !slices.Equal(now, slices.Delete(names, 1, 2)) {
		t.Error(now)
	}
}

// TestNoOtherFileIsOpened checks that names that a catalog does not have give no file, whatever is in the folder.
func TestNoOtherFileIsOpened(t *testing.T) {
	var deleted atomic.Int64
	all, _, dir, names := cataloged(t, func(n News) {
		if n.Deleted {
			deleted.Add(1)
		}
	})
	secret := filepath.Join(t.TempDir(), "secret")
	linked := filepath.Join(dir, names[2])
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.Remove(linked), os.Symlink(secret, linked),
		os.WriteFile(filepath.Join(dir, "rec-20261124T063302933Z.mp4"), []byte("not the recording's own"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"", ".", "..", "../" + names[1], dir + "/" + names[1], "./" + names[1], names[1] + "/", names[1] + "\x00", "secret", ".rec.mp4.index",
		"rec-/../../../../../../.mp4", "rec-..Z.mp4", "rec-20261124T063302933Z.mcap", "rec-20261124T063302933Z.mp4", names[2], "rec-20261124T063302934Z.mp4",
	} {
		if f, err := all.Open(name); !errors.Is(err, ErrNoFile) {
			t.Errorf("%q: %v, %v", name, f, err)
		}
		if c, err := all.OpenClip(t.Context(), name, Position{}, Position{}); !errors.Is(err, ErrNoFile) {
			t.Errorf("%q: %v, %v", name, c, err)
		}
		if err := all.Delete(name, "a test"); !errors.Is(err, ErrNoFile) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := all.Delete(names[0], "a test"); !errors.Is(err, ErrWritten) {
		t.Errorf("the file that is being written: %v", err)
	}
	if err := all.Delete(names[1], "a test"); err != nil || deleted.Load() != 1 {
		t.Errorf("%v, told %d times", err, deleted.Load())
	}
	if _, err := os.Stat(filepath.Join(dir, names[1])); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if got, _ := catalogNames(t, all, "", 10); !slices.Equal(got, []string{names[0], names[3]}) {
		t.Errorf("%v", got)
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestCatalogOfADiskThatHangs checks that a hanging disk delays a catalog only for a moment, and that the files of
// other folders are still listed.
func TestCatalogOfADiskThatHangs(t *testing.T) {
	all, _, _, names := cataloged(t, nil)
	disk := hangtest.Mount(t)
	v := NewVideo(VideoConfig{Directory: disk.Dir, Name: "other", Codec: mp4.H264, Sync: time.Second, Disks: &Disks{}})
	defer v.Close()
	all.Add(v)
	disk.HangWholly(t)
	for range 3 {
		got, c := catalogNames(t, all, "", 10)
		i := slices.IndexFunc(c.Folders, func(f CatalogFolder) bool { return f.Path == disk.Dir })
		if !slices.Equal(got, names) || len(c.Folders) != 2 || !errors.Is(c.Folders[i].Err, ErrHangs) {
			t.Errorf("%v, %+v", got, c.Folders)
		}
	}
	if _, err := all.Open("other-20261124T063302933Z.mp4"); !errors.Is(err, ErrHangs) {
		t.Error(err)
	}
	disk.Answer(t)
	await(t, func() bool {
		_, c := catalogNames(t, all, "", 10)
		return c.Folders[0].Err == nil && c.Folders[1].Err == nil
	})
}

// TestClips checks which pictures a part of a recording has, and their times, also while it grows.
func TestClips(t *testing.T) {
	all, _, _, names := cataloged(t, nil)
	for _, tt := range []struct {
		name, from, to string
		first, last    uint64
		err            error
	}{
		{names[1], "", "", 1060, 1089, nil},
		{names[1], "1063", "1071", 1063, 1070, nil},
		{names[1], "3", "1061", 1060, 1060, nil},
		{names[1], "+29", "", 1089, 1089, nil},
		{names[1], "400ms", "1s", 1070, 1084, nil},
		{names[1], testBegin.Add(65 * testPeriod).Format(time.RFC3339Nano), "", 1065, 1089, nil},
		{names[0], "", "", 1090, 1094, nil},
		{names[0], "1092", "1094", 1092, 1093, nil},
		{names[1], "1090", "", 0, 0, ErrRange},
		{names[1], "1070", "1070", 0, 0, ErrRange},
		{names[1], "1080", "1070", 0, 0, ErrRange},
	} {
		c, err := all.OpenClip(t.Context(), tt.name, position(t, tt.from), position(t, tt.to))
		if tt.err != nil {
			if !errors.Is(err, tt.err) {
				t.Errorf("%+v: %v", tt, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		checkClip(t, fmt.Sprintf("%+v", tt), c, tt.first, tt.last)
	}
}

// position returns the position that a text names, or none.
func position(t *testing.T, text string) (p Position) {
	t.Helper()
	if text != "" {
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// checkClip checks the numbers and times of a clip's pictures, and that any part of it is that of the whole.
func checkClip(t *testing.T, what string, c *Clip, first, last uint64) {
	t.Helper()
	defer c.Close()
	n := first
	for p, err := range c.Pictures() {
		var note Note
		if err == nil {
			err = json.Unmarshal(p.Note, &note)
		}
		if err != nil || note.Frame != n || (p.At-time.Duration(n-first)*testPeriod).Abs() > time.Millisecond {
			t.Errorf("%s: picture %d: %v, %+v, %v", what, n, p.At, note, err)
		}
		n++
	}
	if n != last+1 {
		t.Errorf("%s: it ends before %d", what, n)
	}
	whole := make([]byte, c.Size())
	if _, err := c.ReadAt(whole, 0); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if !bytes.Contains(whole[:32], []byte("ftyp")) {
		t.Errorf("%s: %q", what, whole[:32])
	}
	for at := 0; at < len(whole); at += 997 {
		part := make([]byte, min(1500, len(whole)-at))
		if _, err := c.ReadAt(part, int64(at)); err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(part, whole[at:at+len(part)]) {
			t.Fatalf("%s: bytes from %d on: %v", what, at, err)
		}
	}
}
