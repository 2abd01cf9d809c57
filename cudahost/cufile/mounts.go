// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// mounts records on which mounts direct transfers are faster than the page cache.
type mounts struct {
	mu   sync.Mutex
	list map[uint64]*mount // by device number
}

// A mount records the measurement of a mount, which is made a single time. A measurement on a disk that hangs does not
// delay the use of other mounts.
type mount struct {
	once   sync.Once
	direct bool
}

// wantsDirect reports whether a file that was opened without O_DIRECT is to be accessed with it.
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

// Prepare prepares the driver for files in a folder, or for a file. libcufile, if it is used or optional, registers a file
// there for a moment; unless it is optional, its refusal is an error. In compatibility mode, the file system of a folder
// is measured if Config.Access is Measured, so that the registration of its first file takes no longer than others.
func (d *Driver) Prepare(path string) error {
	if err := d.use("Prepare"); err != nil {
		return err
	}
	defer d.done()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	folder := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if folder || st.Mode&unix.S_IFMT == unix.S_IFREG {
		if err := d.choose(path, folder); err != nil {
			return err
		}
	}
	if folder && d.access == Measured && !d.Mode().Library {
		d.measured(path, st.Dev)
	}
	return nil
}

// measured reports whether direct transfers are faster on the mount of a folder, which has the device number dev. The
// first call for a mount measures that.
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

// Sizes of a trial and of its pieces, in bytes.
const (
	trialBytes = 16 << 20
	trialPiece = 4 << 20
)

// measure writes an unnamed file in a folder both ways, and reports whether the direct way was faster. With the page
// cache the time includes the transfer to the disk. If direct writes fail, measure returns false; if anything else fails,
// it returns true.
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

// trial writes an unnamed file of trialBytes to the disk twice, and returns the time that the faster attempt took.
func trial(folder string, flags int, memory []byte) (best time.Duration, err error) {
	fd, err := unix.Open(folder, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC|flags, 0o600)
	if err != nil {
		return 0, os.NewSyscallError("open", err)
	}
	defer func() { _ = unix.Close(fd) }()
	for range 2 {
		start := time.Now()
		for at := int64(0); at < trialBytes; at += int64(len(memory)) {
			n, err := unix.Pwrite(fd, memory, at)
			if err != nil {
				return 0, os.NewSyscallError("pwrite", err)
			}
			if n < len(memory) {
				return 0, io.ErrShortWrite
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
