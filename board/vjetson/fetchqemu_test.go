// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// writeFiles creates empty files below dir, with their folders.
func writeFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestQEMUVersion(t *testing.T) {
	for _, c := range []struct {
		debs []string
		want string
	}{
		{[]string{"qemu-system-arm_1%3a11.1.3+ds-1~bpo13+1_amd64.deb", "qemu-system-x86_1%3a11.1.3+ds-1~bpo13+1_amd64.deb", "libc6_2.41-12_amd64.deb"}, "11.1.3+ds-1~bpo13+1"},
		{[]string{"qemu-system-arm_10.1.0-1_arm64.deb"}, "10.1.0-1"},
		{[]string{"qemu-system-arm_1%3a10.0.13+ds-0+deb13u1_amd64.deb"}, ""}, // too old
		{[]string{"libc6_2.41-12_amd64.deb"}, ""},
	} {
		dir := t.TempDir()
		writeFiles(t, dir, c.debs...)
		if got, err := qemuVersion(dir); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q %v, want %q", c.debs, got, err, c.want)
		}
	}
}

func TestCachedQEMU(t *testing.T) {
	dir := t.TempDir()
	if q, ok := cachedQEMU(dir); ok {
		t.Errorf("in an empty cache: %+v", q)
	}
	writeFiles(t, dir, "qemu-11.1.3+ds-1~bpo13+1/complete", "qemu-9.9.9/complete", "qemu-11.2.0/usr/bin/qemu-system-aarch64", "sanitized-99999999/complete")
	want := QEMU{Version: "11.1.3+ds-1~bpo13+1", Dir: filepath.Join(dir, "qemu-11.1.3+ds-1~bpo13+1")}
	if q, ok := cachedQEMU(dir); !ok || q != want {
		t.Errorf("%+v %v, want %+v", q, ok, want)
	}
}

// TestQEMUPlaced checks that what is needed to run is kept, with its own libraries, and nothing else.
func TestQEMUPlaced(t *testing.T) {
	const linker = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
	dir := t.TempDir()
	unpacked, q := filepath.Join(dir, "root"), QEMU{Dir: filepath.Join(dir, "qemu-11")}
	writeFiles(t, unpacked, linker, "usr/bin/qemu-system-aarch64", "usr/bin/qemu-system-x86_64", "usr/bin/qemu-system-arm", "usr/share/doc/qemu/README")
	if err := q.place(unpacked, filepath.Join(dir, "kept")); err == nil {
		t.Error("packages without firmware were taken")
	}
	writeFiles(t, unpacked, linker, "usr/bin/qemu-system-aarch64", "usr/bin/qemu-system-x86_64", "usr/share/qemu/a.rom", "usr/share/seabios/bios.bin")
	if err := q.place(unpacked, filepath.Join(dir, "kept2")); err != nil {
		t.Fatal(err)
	}
	var left []string
	_ = filepath.WalkDir(q.Dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			left = append(left, strings.TrimPrefix(path, q.Dir+"/"))
		}
		return err
	})
	want := []string{
		"complete", "usr/bin/qemu-system-aarch64", "usr/bin/qemu-system-x86_64", linker,
		"usr/share/qemu/a.rom", "usr/share/seabios/bios.bin",
	}
	if !slices.Equal(left, want) {
		t.Errorf("kept %q, want %q", left, want)
	}
	want = strings.Fields("DIR/" + linker + " --library-path DIR/usr/lib/x86_64-linux-gnu DIR/usr/bin/qemu-system-aarch64 -L DIR/usr/share/qemu -L DIR/usr/share/seabios")
	for i := range want {
		want[i] = strings.Replace(want[i], "DIR", q.Dir, 1)
	}
	if got, err := q.command("qemu-system-aarch64"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	if err := os.Remove(filepath.Join(q.Dir, linker)); err != nil {
		t.Fatal(err)
	}
	if _, err := q.command("qemu-system-aarch64"); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), q.Dir) {
		t.Errorf("without dynamic linker: %v", err)
	}
}

// TestOnce checks that a missing item is fetched once for concurrent callers, and that a failure permits another try.
func TestOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	failed, fetches := errors.New("no network"), 0 // the lock guards fetches
	find := func(dir string) (string, bool) { return newest(dir, "thing-*") }
	fetch := func(_ context.Context, dir string) (string, error) {
		if fetches++; fetches == 1 {
			return "", failed
		}
		root, placed := filepath.Join(dir, "thing-1"), filepath.Join(dir, "placed") // ignored by find
		return root, errors.Join(os.Mkdir(root, 0o755), place(root, placed), os.Rename(placed, root))
	}
	if _, err := once(t.Context(), find, fetch); !errors.Is(err, failed) {
		t.Fatalf("a fetch that fails: %v", err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got, err := once(t.Context(), find, fetch); err != nil || filepath.Base(got) != "thing-1" {
				t.Errorf("%q %v", got, err)
			}
		})
	}
	all.Wait()
	if fetches != 2 {
		t.Errorf("%d fetches, want 2", fetches)
	}
}
