// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
)

// standInLibrary builds the stand-in for libcufile.
func standInLibrary(t testing.TB, defines ...string) string {
	t.Helper()
	library := filepath.Join(t.TempDir(), "libcufile.so")
	args := append([]string{"-shared", "-fPIC", "-Wall", "-Werror", "-o", library, "testdata/libcufile.c"}, defines...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return library
}

// TestNoLibrary checks that each reason gives one clear error.
func TestNoLibrary(t *testing.T) {
	device := standIn(t)
	for reason, c := range map[string]Config{
		"is not installed": {Library: filepath.Join(t.TempDir(), "none.so"), Device: device},
		"it is older than": {Library: standInLibrary(t, "-DINCOMPLETE"), Device: device},
	} {
		c.Settings = DefaultSettings()
		if _, err := Open(c); !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v, want %q", err, reason)
		}
	}
	c := Config{Library: standInLibrary(t), Settings: DefaultSettings()}
	_, err := Open(c)
	want(t, err, InvalidValue)
	c.Library, c.Device = standInLibrary(t, "-DNO_CUDA"), device
	if _, err = Open(c); !errors.Is(err, CUDADriverError) || !strings.Contains(err.Error(), "CUresult 100") {
		t.Errorf("%v", err)
	}
}

// hostMemory returns a function that allocates a GPU's host memory.
func hostMemory(c *cudahost.CUDA) func(t testing.TB, size int) ([]byte, uintptr) {
	return func(t testing.TB, size int) ([]byte, uintptr) {
		t.Helper()
		b, err := c.AllocHost(size, cudahost.Portable|cudahost.Mapped)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { want(t, b.Close(), Success) })
		return b.Bytes(), b.Addr()
	}
}

// realLibrary opens NVIDIA's libcufile, or skips the test. TEGRACAST_LIBCUFILE is its path if it is not in a standard
// place.
func realLibrary(t *testing.T) (*cudahost.CUDA, Config) {
	t.Helper()
	c := cudatest.GPU(t)
	config := Config{Library: cmp.Or(os.Getenv("TEGRACAST_LIBCUFILE"), LibraryName), Device: c.Device}
	d, err := Open(config)
	if errors.Is(err, ErrNoLibrary) && os.Getenv("TEGRACAST_LIBCUFILE") == "" {
		t.Skipf("NEEDS %s, or its path in TEGRACAST_LIBCUFILE: %v", LibraryName, err)
	} else if err != nil {
		t.Fatal(err)
	}
	p, err := d.Properties()
	needs, refused := fileSystem(d, t.TempDir())
	want(t, errors.Join(err, refused, d.Close()), Success)
	t.Logf("%v: %+v", c.Device, p)
	if needs != "" {
		t.Skip(needs)
	}
	return c, config
}

// fileSystem asks libcufile whether it accepts files in a folder. If it does not know the file system, needs says what
// the machine lacks. err is any other failure.
func fileSystem(d *Driver, folder string) (needs string, err error) {
	err = d.Prepare(folder)
	if errors.Is(err, HandleNotRegistered) {
		return fmt.Sprintf("NEEDS A FILE SYSTEM THAT LIBCUFILE ACCEPTS in TMPDIR, such as ext4, and udev's database /run/udev: %v", err), nil
	}
	return "", err
}

// TestFileSystemIsAsked checks that only libcufile's refusal of a file system skips the tests with a GPU.
func TestFileSystemIsAsked(t *testing.T) {
	folder := t.TempDir()
	refused := filepath.Join(folder, "refused")
	if err := os.Mkdir(refused, 0o700); err != nil {
		t.Fatal(err)
	}
	for library, refusal := range map[string]Status{standInLibrary(t): Success, standInLibrary(t, "-DBROKEN"): InternalError} {
		d, err := Open(Config{Library: library, Device: standIn(t), Settings: DefaultSettings()})
		if err != nil {
			t.Fatal(err)
		}
		needs, err := fileSystem(d, folder)
		if want(t, err, refusal); needs != "" {
			t.Errorf("skips with %q", needs)
		}
		if needs, err = fileSystem(d, refused); !strings.Contains(needs, "/run/udev") || err != nil {
			t.Errorf("%q, %v", needs, err)
		}
		want(t, d.Close(), Success)
	}
}

// TestGPUConformance runs the checklist with NVIDIA's libcufile, in its compatibility mode if there is no nvidia-fs.
func TestGPUConformance(t *testing.T) {
	c, config := realLibrary(t)
	for name, s := range map[string]*site{"O_DIRECT": {flags: unix.O_DIRECT}, "buffered": {}} {
		s.config, s.folder, s.memory, s.device, s.released = config, t.TempDir(), hostMemory(c), c.Device, true
		t.Run(name, func(t *testing.T) { s.conform(t) })
	}
}

// TestGPUMemory writes memory of the GPU to a file and reads it back by libcufile.
func TestGPUMemory(t *testing.T) {
	c, config := realLibrary(t)
	s := &site{config: config, folder: t.TempDir(), device: c.Device}
	d := s.open(t, nil)
	const size = 3<<20 + 4096
	memory, err := c.Device.AllocDevice(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { want(t, memory.Close(), Success) })
	content := make([]byte, size)
	pattern(content)
	want(t, memory.Write(content), Success)
	for _, registered := range []bool{false, true} {
		h := s.handle(t, d, os.O_RDWR)
		if registered {
			want(t, d.RegisterBuffer(memory.Pointer, size, 0), Success)
		}
		if n, err := h.Write(memory.Pointer, size, 0, 0); n != size || err != nil {
			t.Errorf("%d written, %v", n, err)
		}
		holds(t, h, 0, content)
		if err := os.Truncate(h.caller.Name(), size-1000); err != nil {
			t.Fatal(err)
		}
		if n, err := h.Read(memory.Pointer, size, 0, 0); n != size-1000 || err != nil {
			t.Errorf("%d read, %v", n, err)
		}
	}
	want(t, d.DeregisterBuffer(memory.Pointer), Success)
}

// TestGPULibraryDecides logs the answers of NVIDIA's libcufile where its document is contradictory or silent, without
// this package's checks.
func TestGPULibraryDecides(t *testing.T) {
	c, config := realLibrary(t)
	s := &site{config: config, folder: t.TempDir(), memory: hostMemory(c), device: c.Device}
	d := s.open(t, nil)
	l := d.current().(*library)
	h, again := s.handle(t, d, os.O_RDWR), new(File)
	_, base := s.memory(t, 1<<20)
	again.fd = h.fd
	appending, folder := &File{fd: int(s.file(t, os.O_RDWR|os.O_APPEND).Fd())}, &File{}
	if f, err := os.Open(s.folder); err == nil {
		folder.fd = int(f.Fd())
		defer func() { _ = f.Close() }()
	}
	for _, c := range []struct {
		what string
		err  error
	}{
		{"a second open", l.call(symDriverOpen)},
		{"the same descriptor", l.openFile(again, 0, 0)},
		{"O_APPEND", l.openFile(appending, 0, 0)},
		{"a folder", l.openFile(folder, 0, 0)},
		{"host memory", l.call(symBufRegister, base, 1<<20, 0)},
		{"host memory again", l.call(symBufRegister, base, 1<<20, 0)},
		{"a part of it", l.call(symBufRegister, base+4096, 4096, 0)},
		{"its end", l.call(symBufDeregister, base)},
		{"its end again", l.call(symBufDeregister, base)},
		{"poll mode of 3 KB", l.call(symDriverSetPollMode, 1, 3)},
		{"pieces of 0 KB", l.call(symDriverSetMaxDirectIOSize, 0)},
		{"the first close", l.call(symDriverClose)},
		{"a transfer then", func() error { _, err := h.Write(base, 4096, 0, 0); return err }()},
	} {
		t.Logf("%-20s %v", c.what, c.err)
	}
}
