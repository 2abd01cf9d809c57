// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Paths list what a process may read and write, besides programs, libraries and what the kernel shows of itself.
type Paths struct {
	Files  []string // it may read them, and all that lies in their folders
	Writes []string // folders, which are made, in which it may make, change and remove files, and use devices
}

// system are the paths that every process may read.
var system = []string{
	"/usr", "/lib", "/lib64", "/opt", "/proc", "/sys", "/dev/urandom", "/dev/zero", "/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime",
	"/etc/nvidia", "/etc/nv_tegra_release", "/etc/nvsciipc.cfg", // NVIDIA's libraries
}

// Rights of Landlock (landlock.rst of Linux).
const (
	reading = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	ofFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	writing = reading | ofFiles | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_REFER
)

// handled returns the rights that a release of Landlock's interface knows.
func handled(abi uintptr) uint64 {
	rights := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1)
	for since, right := range map[uintptr]uint64{
		2: unix.LANDLOCK_ACCESS_FS_REFER, 3: unix.LANDLOCK_ACCESS_FS_TRUNCATE, 5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
	} {
		if abi >= since {
			rights |= right
		}
	}
	return rights
}

// landlock returns the release of Landlock's interface, or 0 if there is none: the kernel has none, or a container refuses it.
func landlock() uintptr {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return abi
}

// restrict limits the files of the calling thread, and of a program that it starts. It needs no_new_privs, and does
// nothing without Landlock.
func restrict(program string, environment []string, p Paths) error {
	abi := landlock()
	if abi == 0 {
		return nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled(abi)}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("limit of paths: %w", errno)
	}
	defer unix.Close(int(fd))
	rights := map[string]uint64{program: reading, os.DevNull: reading | unix.LANDLOCK_ACCESS_FS_WRITE_FILE}
	for _, path := range append(p.folders(environment), system...) {
		rights[path] |= reading
	}
	for _, path := range p.Writes {
		_ = os.MkdirAll(path, 0o700) // without it the process can write nothing there, and says so
		rights[path] |= writing
	}
	for path, r := range rights {
		if err := allow(int(fd), path, r&attr.Handled_access_fs); err != nil {
			return fmt.Errorf("limit of paths: %s: %w", path, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("limit of paths: %w", errno)
	}
	return nil
}

// folders returns the folders of the files, also those to which symbolic links lead, and the environment's of libraries.
func (p *Paths) folders(environment []string) (folders []string) {
	for _, file := range p.Files {
		folders = append(folders, filepath.Dir(file))
		if target, err := filepath.EvalSymlinks(file); err == nil {
			folders = append(folders, filepath.Dir(target))
		}
	}
	for _, variable := range environment {
		if list, is := strings.CutPrefix(variable, "LD_LIBRARY_PATH="); is {
			folders = append(folders, filepath.SplitList(list)...)
		}
	}
	return folders
}

// allow adds rights below a path to a set of rules. A path that is not there is left out.
func allow(rules int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // the process could not open it either
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= ofFiles
	}
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
