// SPDX-License-Identifier: Apache-2.0

package onnx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestModelsAreKept checks that a model is read again exactly if one of its files may have changed.
func TestModelsAreKept(t *testing.T) {
	dir := t.TempDir()
	path, other, weights := filepath.Join(dir, "m.onnx"), filepath.Join(dir, "n.onnx"), filepath.Join(dir, "w.bin")
	write := func(path string, content []byte) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(path, build(in, out, relu, outside("location", "w.bin")))
	write(other, build(in, out, relu, outside("location", "w.bin")))
	write(weights, make([]byte, 24))
	c := cache{now: func() time.Time { return time.Now().Add(time.Hour) }} // the files have settled
	limits := Limits{1 << 20, 1 << 10, 8}
	var last *Model
	opens := func(what string, again bool) {
		t.Helper()
		m, err := c.open(path, limits)
		if err != nil {
			t.Fatal(err)
		}
		if (m != last) != again {
			t.Errorf("%s: read again is %v", what, m != last)
		}
		if fresh, err := open(path, limits); err != nil || fresh.Digest != m.Digest {
			t.Errorf("%s: digest %s, and the file's is %s, %v", what, m.Digest, fresh.Digest, err)
		}
		last = m
	}
	opens("first", true)
	opens("unchanged", false)
	info, err := os.Stat(weights)
	if err != nil {
		t.Fatal(err)
	}
	write(weights, append(make([]byte, 23), 1))
	if err := os.Chtimes(weights, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	opens("other weights of the same size, with the same time", true)
	opens("unchanged", false)
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	opens("another file", true)
	limits.Depth++
	opens("other limits", true)
	for i := range mostKept {
		limits.Depth = 20 + i
		opens("more limits", true)
	}
	limits.Depth = 9
	opens("the oldest", true)
	if len(c.list) != mostKept {
		t.Errorf("%d are kept", len(c.list))
	}
	c.now = time.Now
	write(weights, make([]byte, 24))
	opens("just written", true)
	opens("just written, and read again", true)
	if err := os.Remove(weights); err != nil {
		t.Fatal(err)
	}
	if _, err := c.open(path, limits); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestKeptModelsOfSeveral opens models in several goroutines.
func TestKeptModelsOfSeveral(t *testing.T) {
	dir := t.TempDir()
	c := cache{now: func() time.Time { return time.Now().Add(time.Hour) }}
	for i := range mostKept + 2 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), build(in, out, relu), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	for range 4 {
		go func() {
			var err error
			for i := range 100 {
				_, bad := c.open(filepath.Join(dir, fmt.Sprint(i%(mostKept+2))), Limits{1 << 20, 1 << 10, 8})
				err = errors.Join(err, bad)
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if len(c.list) > mostKept {
		t.Errorf("%d are kept", len(c.list))
	}
}
