// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// mounts are those of which it is known whether direct transfers are faster than the page cache.
type mounts struct {
	mu   sync.Mutex
	list map[uint64]*mount // by device number
}

// mount is measured once. Whoever measures one whose disk hangs holds up nobody who asks for another one.
type mount struct {
	once   sync.Once
	direct bool
}

// wantsDirect says whether a file that was not opened with O_DIRECT is to be read and written so.
func (d *Driver) wantsDirect(f *File, flags int, dev uint64) bool {
	switch {
	case d.access == Buffered:
		return false
	case d.access == Direct || flags&unix.O_ACCMODE == unix.O_RDONLY:
		return true
	}
	folder, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.fd))
	if err != nil {
		return true
	}
	return d.measured(filepath.Dir(folder), dev)
}

// Prepare measures the file system of a folder, so that registering its first file takes no longer than that of others.
func (d *Driver) Prepare(folder string) error {
	if err := d.use("Prepare"); err != nil {
		return err
	}
	defer d.done()
	var st unix.Stat_t
	if err := unix.Stat(folder, &st); err != nil {
		return &os.PathError{Op: "stat", Path: folder, Err: err}
	}
	if d.access == Measured {
		d.measured(folder, st.Dev)
	}
	return nil
}

// measured says whether direct transfers are faster on the mount of a folder.
func (d *Driver) measured(folder string, dev uint64) bool {
	m := d.mounts.of(dev)
	m.once.Do(func() { m.direct = d.measure(folder) })
	return m.direct
}

func (m *mounts) of(dev uint64) *mount {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.list == nil {
		m.list = map[uint64]*mount{}
	}
	if m.list[dev] == nil {
		m.list[dev] = &mount{}
	}
	return m.list[dev]
}

// A trial writes so much, in pieces.
const (
	trialBytes = 16 << 20
	trialPiece = 4 << 20
)

// measure writes a file without a name in a folder, both ways, and says whether the direct way was faster. The page cache's time
// counts until the data are on the disk. Where that cannot be tried, direct is taken.
func (d *Driver) measure(folder string) bool {
	memory, err := unix.Mmap(-1, 0, trialPiece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return true
	}
	defer func() { _ = unix.Munmap(memory) }()
	direct, err := d.trial(folder, unix.O_DIRECT, memory)
	if err != nil {
		d.log.Info("files are written through the page cache", "folder", folder, "reason", err)
		return false
	}
	buffered, err := d.trial(folder, 0, memory)
	if err != nil {
		return true
	}
	d.log.Info("the file system was measured", "folder", folder, "direct", rate(direct), "page cache", rate(buffered), "taken direct", direct < buffered)
	return direct < buffered
}

func rate(took time.Duration) string {
	return fmt.Sprintf("%.0f MB/s", trialBytes/1e6/took.Seconds())
}

// trial is how long it takes to have a file without a name on the disk, in the better of two tries.
func trial(folder string, flags int, memory []byte) (best time.Duration, err error) {
	fd, err := unix.Open(folder, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC|flags, 0o600)
	if err != nil {
		return 0, os.NewSyscallError("open", err)
	}
	defer func() { _ = unix.Close(fd) }()
	for range 2 {
		start := time.Now()
		for at := int64(0); at < trialBytes; at += int64(len(memory)) {
			if n, err := unix.Pwrite(fd, memory, at); err != nil || n < len(memory) {
				return 0, fmt.Errorf("%d bytes were written: %w", n, os.NewSyscallError("pwrite", err))
			}
		}
		if err := unix.Fdatasync(fd); err != nil {
			return 0, os.NewSyscallError("fdatasync", err)
		}
		if took := time.Since(start); best == 0 || took < best {
			best = took
		}
		if err := unix.Ftruncate(fd, 0); err != nil {
			return 0, os.NewSyscallError("ftruncate", err)
		}
	}
	return best, nil
}
