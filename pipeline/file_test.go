// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOnlyRegularFilesAreRead: everything else is refused at once, and so is a file that is too long.
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
