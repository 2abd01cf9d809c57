// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOnlyRegularFilesAreRead checks that anything but a regular file is refused at once, and so is a file that is too
// long.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	name := func(s string) string { return filepath.Join(dir, s) }
	if err := unix.Mkfifo(name("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", name("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for file, text := range map[string]string{"empty": "", "good": "text", "long": "longer"} {
		if err := os.WriteFile(name(file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(name("good"), name("link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		name("empty"): "", name("good"): "text", name("link"): "text",
	} {
		if b, err := ReadRegular(path, 4, "a test"); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	began := time.Now()
	for path, want := range map[string]string{
		name("long"): "is longer than 4 bytes: that cannot be a test", "/proc/self/status": "is longer than 4 bytes",
		name("fifo"): "is a FIFO, not a regular file: name a file", name("socket"): "is a socket, not", dir: "is a directory, not", "/dev/zero": "is a device, not",
	} {
		if _, err := ReadRegular(path, 4, "a test"); err == nil || !strings.Contains(err.Error(), path+" "+want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := ReadRegular(name("none"), 4, "a test"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestWriteWhole checks that a link is replaced and not followed, that readers never see a partial file, and that a
// failed write leaves the old file and no other.
func TestWriteWhole(t *testing.T) {
	dir := t.TempDir()
	path, victim := filepath.Join(dir, "raw.sdp"), filepath.Join(dir, "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("mine"), 0o600), os.Symlink(victim, path)); err != nil {
		t.Fatal(err)
	}
	whole := strings.Repeat("x", 1<<20)
	read := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%d bytes, want %d: %v", len(text), len(want), err)
		}
	}
	for range 2 {
		err := WriteWhole(path, 0o644, func(w io.Writer) error {
			_, err := io.WriteString(w, whole[:1000])
			if info, serr := os.Lstat(path); serr != nil || info.Mode().IsRegular() && info.Size() != int64(len(whole)) {
				t.Errorf("a part can be read: %v, %v", info, serr)
			}
			_, again := io.WriteString(w, whole[1000:])
			return errors.Join(err, again)
		})
		if err != nil {
			t.Fatal(err)
		}
		read(whole)
	}
	failed := errors.New("failed")
	if err := WriteWhole(path, 0o644, func(io.Writer) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	read(whole)
	if err := WriteText(path, 0o600, []byte("text")); err != nil {
		t.Error(err)
	}
	read("text")
	if err := errors.Join(os.Remove(path), os.Symlink(victim, path), WriteSynced(path, 0o600, []byte("synced"))); err != nil {
		t.Error(err)
	}
	read("synced")
	if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
		t.Errorf("what the link names has %q, %v", text, err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	if err := WriteText(filepath.Join(dir, "none", "x"), 0o600, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
