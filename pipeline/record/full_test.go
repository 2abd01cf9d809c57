// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
)

// small mounts a small tmpfs.
func small(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("NEEDS root, to mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// frames returns the number of frames in the files of a recording, which must be good, and the number of files.
func frames(t *testing.T, dir string) (n uint64, files int) {
	t.Helper()
	list, err := Files(dir, "rec")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		r, err := Inspect(t.Context(), path, true, func(float64) {})
		if err != nil || !r.Good() || !r.Finished || r.Checked != r.Frames {
			t.Errorf("%s: %+v, %v", path, r, err)
			continue
		}
		n += uint64(r.Frames)
	}
	return n, len(list)
}

// TestAFullDiskEndsTheRecording checks that it ends with ErrFull, and that what was written before is complete, with
// its index.
func TestAFullDiskEndsTheRecording(t *testing.T) {
	f, dir := format(t, pipeline.RGGB10, 640, 480), small(t, "size=5m")
	st, err := record(t, Config{Directory: dir}, f, 60, 2*time.Millisecond)
	if !errors.Is(err, ErrFull) || !errors.Is(err, unix.ENOSPC) || st.Captured != st.Delivered+st.Drops() {
		t.Errorf("%+v, %v", st, err)
	}
	if n, files := frames(t, dir); n != st.Delivered || n < 5 || files != 1 {
		t.Errorf("%d frames in %d files, the books have %d", n, files, st.Delivered)
	}
	if again, err := record(t, Config{Directory: dir}, f, 10, time.Millisecond); !errors.Is(err, ErrFull) || again.Delivered > 0 {
		t.Errorf("%+v, %v", again, err)
	}
	if _, files := frames(t, dir); files != 1 {
		t.Errorf("%d files: one that got no frame has stayed", files)
	}
}

// TestAFullDiskCostsTheOldestFiles checks that only the oldest files of this recording are lost, and no frame.
func TestAFullDiskCostsTheOldestFiles(t *testing.T) {
	f, dir := format(t, pipeline.RGGB10, 640, 480), small(t, "size=8m")
	other := filepath.Join(dir, "other-20261124T063302933Z.mcap")
	if err := os.WriteFile(other, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := record(t, Config{Directory: dir, Size: 2 * int64(f.Size()), DeleteOldest: true}, f, 60, 2*time.Millisecond)
	if err != nil || st.Delivered != 60 {
		t.Errorf("%+v, %v", st, err)
	}
	if n, files := frames(t, dir); n < 4 || n > 12 || files < 2 {
		t.Errorf("%d frames in %d files", n, files)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a file of another recording: %v", err)
	}
	dir = small(t, "size=5m")
	if _, err = record(t, Config{Directory: dir, DeleteOldest: true}, f, 60, 2*time.Millisecond); !errors.Is(err, ErrFull) {
		t.Errorf("there is nothing to delete but the file that is being written: %v", err)
	}
	if n, _ := frames(t, dir); n < 5 {
		t.Errorf("%d frames", n)
	}
}

// TestAReadOnlyDiskEndsTheRecording checks that it ends with a named error, and that the stream continues.
func TestAReadOnlyDiskEndsTheRecording(t *testing.T) {
	dir := small(t, "size=5m,ro")
	for _, c := range []Config{{Directory: dir}, {Directory: dir, Window: &Window{After: time.Second}}} {
		st, err := record(t, c, format(t, pipeline.Grey, 64, 64), 20, time.Millisecond)
		if !errors.Is(err, ErrDirectory) || !errors.Is(err, unix.EROFS) || st.Captured != st.Delivered+st.Drops() {
			t.Errorf("%+v, %v", st, err)
		}
	}
}

// TestAFolderThatIsDeletedEndsTheRecording checks that it ends with a named error, and that the stream continues. If
// only the file is deleted, the recording continues with another one.
func TestAFolderThatIsDeletedEndsTheRecording(t *testing.T) {
	for _, window := range []*Window{nil, {Before: time.Second, After: time.Hour}} {
		dir := filepath.Join(t.TempDir(), "recordings")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		st, err := recordStepped(t, Config{Directory: dir, Sync: time.Millisecond, Window: window}, 400, func(*Sink) {}, func(s *Sink, n int) {
			switch list, _ := Files(dir, "rec"); {
			case n == 10 && window != nil:
				if err := s.Trigger(Trigger{Cause: "test"}); err != nil {
					t.Error(err)
				}
			case n == 100 && len(list) == 1:
				if err := os.Remove(list[0]); err != nil {
					t.Error(err)
				}
			case n == 200:
				if len(list) != 1 {
					t.Errorf("files %v, want a second one", list)
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Millisecond)
		})
		if !errors.Is(err, ErrDirectory) || st.Captured != st.Delivered+st.Drops() || st.Delivered < 150 {
			t.Errorf("%+v, %v", st, err)
		}
	}
}
