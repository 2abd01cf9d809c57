// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// holdsDeleted reports whether this process holds a file that was deleted, whose space is then not free.
func holdsDeleted(t *testing.T, path string) bool {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", os.Getpid()))
	if err != nil || len(links) == 0 {
		t.Fatal(links, err)
	}
	for _, l := range links {
		if to, _ := os.Readlink(l); to == path+" (deleted)" {
			return true
		}
	}
	return false
}

// TestDeletionEndsReaders checks that a file that is deleted, by a client or because of a limit, is closed for all its
// readers.
func TestDeletionEndsReaders(t *testing.T) {
	all, v, dir, names := cataloged(t, nil)
	for name, remove := range map[string]func(name string) error{
		names[3]: func(string) error {
			list, err := v.finished()
			if err != nil {
				return err
			}
			return v.delete(list[0], "a test")
		},
		names[1]: func(name string) error { return all.Delete(name, "a test") },
	} {
		file, err := all.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		clip, end := opened(t, all, name), make([]byte, 1)
		if _, err := clip.ReadAt(end, clip.Size()-1); err != nil {
			t.Error(err)
		}
		if err := remove(name); err != nil {
			t.Fatal(err)
		}
		if holdsDeleted(t, filepath.Join(dir, name)) {
			t.Errorf("%s is held", name)
		}
		if _, err := clip.ReadAt(end, clip.Size()-1); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a clip goes on: %v", err)
		}
		if _, err := file.Read(end); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a download goes on: %v", err)
		}
		if err := errors.Join(file.Close(), clip.Close()); err != nil || len(all.catalogs["rec"].opened.list) > 0 {
			t.Errorf("%v, %v", err, all.catalogs["rec"].opened.list)
		}
	}
}
