// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost"
)

// A line is a line of the document's checklist (testdata/checklist.txt has the numbers): 002.1 has the calls with their
// return values, 002.2 the types, 002.3 the status codes, 002.4 the rules, 002.5 compatibility mode, 002.6 cufile.json,
// and 002.7 the sample program and the contradictions. Lines of 002.2 to 002.7 are numbered in the document's order.
type line struct {
	number string
	what   string
	test   func(t *testing.T, s *site)
}

// lines returns all lines that can be provoked.
func lines() []line {
	return slices.Concat(driverLines, fileLines, bufferLines, batchLines, ruleLines, streamLines,
		asyncLines("002.1.15", false), asyncLines("002.1.16", true), statusLines(), settingsLines(), contradictionLines())
}

// TestConformance runs the checklist line by line, in compatibility mode and with a stand-in for libcufile. On tmpfs and
// xfs, files are opened without O_DIRECT only by make test-long.
func TestConformance(t *testing.T) {
	device, library := standIn(t), standInLibrary(t)
	long := os.Getenv("TEGRACAST_LONG") != ""
	for where, folder := range folders(t) {
		for _, calls := range []bool{false, true} {
			engine := map[bool]string{false: "io_uring", true: "preadv2"}[calls]
			for name, s := range map[string]*site{
				"O_DIRECT": {folder: folder, flags: unix.O_DIRECT}, "direct": {folder: folder, config: Config{Access: Direct}},
				"buffered": {folder: folder, config: Config{Access: Buffered}},
			} {
				if s.flags == 0 && where != "disk" && !long {
					continue
				}
				s.config.Calls, s.memory, s.device = calls, memory, device
				t.Run(fmt.Sprintf("%s/%s/%s", engine, where, name), func(t *testing.T) { s.conform(t) })
			}
		}
		for name, flags := range map[string]int{"O_DIRECT": unix.O_DIRECT, "buffered": 0} {
			if flags == 0 && where != "disk" && !long {
				continue
			}
			s := &site{config: Config{Library: library, Device: device}, folder: folder, flags: flags, memory: memory, device: device}
			t.Run(fmt.Sprintf("libcufile/%s/%s", where, name), func(t *testing.T) { s.conform(t) })
		}
	}
}

func (s *site) conform(t *testing.T) {
	if s.flags&unix.O_DIRECT != 0 && !s.hasDirect(t) {
		return
	}
	for _, l := range lines() {
		t.Run(l.number+" "+l.what, func(t *testing.T) { l.test(t, s) })
	}
}

// hasDirect reports whether the file system supports O_DIRECT. tmpfs supports it since Linux 6.6.
func (s *site) hasDirect(t *testing.T) bool {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(s.folder, "direct"), os.O_CREATE|os.O_RDWR|unix.O_DIRECT, 0o600)
	if err == nil {
		_ = f.Close()
	}
	switch {
	case strings.HasPrefix(s.folder, "/dev/shm") && !kernelHas(t, 6, 6):
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("tmpfs before Linux 6.6 must refuse O_DIRECT: %v", err)
		}
		return false
	case err != nil:
		t.Errorf("%s must have O_DIRECT: %v", s.folder, err)
	}
	return err == nil
}

func kernelHas(t *testing.T, major, minor int) bool {
	t.Helper()
	var name unix.Utsname
	var a, b int
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	} else if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &a, &b); err != nil {
		t.Fatal(err)
	}
	return a > major || a == major && b >= minor
}

// folders returns the folders in which the checklist is run, by file system.
func folders(t *testing.T) map[string]string {
	disk := t.TempDir()
	list := map[string]string{"disk": disk}
	if shm, err := os.MkdirTemp("/dev/shm", "cufile"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(shm) })
		list["tmpfs"] = shm
	} else {
		t.Logf("NEEDS /dev/shm to test tmpfs: %v", err)
	}
	if xfs, err := mountXFS(t, disk); err == nil {
		list["xfs"] = xfs
	} else {
		t.Logf("NEEDS root, a loop device and mkfs.xfs (xfsprogs) to test xfs: %v", err)
	}
	return list
}

// mountXFS makes a file system in a file and mounts it.
func mountXFS(t *testing.T, folder string) (string, error) {
	image, at := filepath.Join(folder, "xfs.img"), filepath.Join(folder, "xfs")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 400<<20), os.Mkdir(at, 0o700)); err != nil {
		return "", err
	}
	for _, command := range [][]string{{"mkfs.xfs", "-q", image}, {"mount", "-o", "loop", image, at}} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", command[0], err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return at, nil
}

// A site is an environment for a line: a back end, a folder, and the flags for opening files.
type site struct {
	config Config
	folder string
	flags  int // of open(2), in addition
	// memory returns size bytes that do not move, page aligned.
	memory func(t testing.TB, size int) ([]byte, uintptr)
	device *cudahost.Device // of streams
	// released says that libcufile is NVIDIA's, which differs in what the package's comment lists.
	released bool
}

// memory returns host memory that does not move, page aligned.
func memory(t testing.TB, size int) ([]byte, uintptr) {
	t.Helper()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b, uintptr(unsafe.Pointer(&b[0]))
}

// open opens a driver with the document's settings, changed by change if it is not nil.
func (s *site) open(t testing.TB, change func(*Settings)) *Driver {
	t.Helper()
	c := s.config
	c.Settings, c.Logger = DefaultSettings(), slog.New(slog.DiscardHandler)
	if change != nil {
		change(c.Settings)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, DriverNotInitialized) {
			t.Error(err)
		}
	})
	return d
}

// file makes a file and opens it.
func (s *site) file(t testing.TB, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(s.folder, fmt.Sprintf("f%d", rand.Uint64())), os.O_CREATE|flags|s.flags, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) })
	return f
}

// handle makes a file and registers it.
func (s *site) handle(t testing.TB, d *Driver, flags int) *File {
	t.Helper()
	h, err := d.RegisterFile(s.file(t, flags))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// pattern fills b with fixed bytes that depend on their position.
func pattern(b []byte) { _, _ = rand.NewChaCha8([32]byte{}).Read(b) }

// want fails unless err is the given status. Success means no error.
func want(t testing.TB, err error, s Status) {
	t.Helper()
	if (err == nil) != (s == Success) || err != nil && !errors.Is(err, s) {
		t.Errorf("%v, want %v", err, s)
	}
}

// holds fails unless the file of h has exactly these bytes from an offset on.
func holds(t testing.TB, h *File, from int64, b []byte) {
	t.Helper()
	got, err := os.ReadFile(h.caller.Name())
	if err != nil || int64(len(got)) < from || !bytes.Equal(got[from:], b) {
		t.Errorf("the file has %d bytes and not the %d that were written at %d: %v", len(got), len(b), from, err)
	}
}

// TestEveryLineHasACase compares the checklist with the cases, and with the lines that cannot be provoked
// (testdata/without-case.txt).
func TestEveryLineHasACase(t *testing.T) {
	text, err := os.ReadFile("testdata/checklist.txt")
	if err != nil {
		t.Fatal(err)
	}
	without, err := os.ReadFile("testdata/without-case.txt")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, l := range lines() {
		count[l.number]++
	}
	for _, row := range regexp.MustCompile(`(?m)^(002[^:]*):`).FindAllStringSubmatch(string(without), -1) {
		for _, number := range strings.Fields(strings.ReplaceAll(row[1], ",", " ")) {
			count[number]++
		}
	}
	for _, number := range strings.Fields(string(text)) {
		if count[number] != 1 {
			t.Errorf("line %s has %d cases or entries in without-case.txt, and must have one", number, count[number])
		}
		delete(count, number)
	}
	if len(count) > 0 {
		t.Errorf("the checklist does not have %v", slices.Sorted(maps.Keys(count)))
	}
}
