// SPDX-License-Identifier: Apache-2.0

// Package vma reports whether memory of this process can be pinned, by the same rules as the kernel module's
// tp_check_vma (tegra/kmod/pin.c). The module's stand-ins use it.
package vma

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mapping is an entry of /proc/self/maps (proc_pid_maps(5)).
type mapping struct {
	first, last uint64 // last is one past the end
	prot        string // such as "rw-s"
	device      string
	name        string // "" for anonymous memory
}

// Check returns an error if a range of at least one byte is not mapped, spans more than one mapping, is device memory,
// is not readable, is to be written by the device but not writable by the process, or lies in a shared writable mapping
// of a file with write-back. The error wraps EFAULT, like that of PIN, unless the mappings cannot be read. Unlike the
// module, Check does not reject memory that a userfaultfd fills.
func Check(addr uintptr, size int, write bool) error {
	at, end := uint64(addr), uint64(addr)+uint64(size)
	m, err := find(at)
	if err != nil {
		return err
	}
	refuse := func(format string, a ...any) error {
		return fmt.Errorf("%d bytes at %#x: %w: %s", size, addr, unix.EFAULT, fmt.Sprintf(format, a...))
	}
	switch {
	case m == nil:
		return refuse("nothing is mapped at %#x", at)
	case end > m.last:
		return refuse("its mapping ends at %#x: pin one whole allocation", m.last)
	case m.prot[0] != 'r' || write && m.prot[1] != 'w':
		return refuse("it has protection %s", m.prot)
	case m.plain():
		return nil
	}
	flags, err := m.flags()
	if err != nil {
		return err
	}
	switch {
	case slices.Contains(flags, "io") || slices.Contains(flags, "pf"):
		return refuse("%s is device memory", m.name)
	case m.prot[1] == 'w' && m.prot[3] == 's' && m.writtenBack():
		return refuse("%s is a file with write-back, which does not learn of what a device writes", m.name)
	}
	return nil
}

// find returns the mapping of this process that contains an address, or nil if there is none.
func find(at uint64) (*mapping, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("memory map of the process: %w", err)
	}
	for line := range bytes.Lines(maps) {
		if m, ok := parse(string(line)); ok && at < m.last {
			if at < m.first {
				break
			}
			return &m, nil
		}
	}
	return nil, nil
}

// parse parses "first-last prot offset device inode name".
func parse(line string) (m mapping, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 || len(fields[1]) < 4 {
		return m, false
	}
	a, b, ok := strings.Cut(fields[0], "-")
	if !ok {
		return m, false
	}
	var err1, err2 error
	m.first, err1 = strconv.ParseUint(a, 16, 64)
	m.last, err2 = strconv.ParseUint(b, 16, 64)
	m.prot, m.device, m.name = fields[1], fields[3], strings.Join(fields[5:], " ")
	return m, err1 == nil && err2 == nil
}

// plain reports whether the memory is anonymous, or shared memory without a file system.
func (m *mapping) plain() bool {
	for _, prefix := range []string{"[heap]", "[stack", "[anon", "/memfd:", "/dev/zero (deleted)", "/SYSV"} {
		if strings.HasPrefix(m.name, prefix) {
			return true
		}
	}
	return m.name == ""
}

// flags returns the VmFlags of the mapping in /proc/self/smaps (proc_pid_smaps(5)), which takes longer to read than
// maps.
func (m *mapping) flags() ([]string, error) {
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return nil, fmt.Errorf("memory map of the process: %w", err)
	}
	within := false
	for line := range bytes.Lines(smaps) {
		if list, is := bytes.CutPrefix(line, []byte("VmFlags:")); is && within {
			return strings.Fields(string(list)), nil
		}
		if one, ok := parse(string(line)); ok {
			within = one.first == m.first
		}
	}
	return nil, nil // the mapping has gone in the meantime
}

// writtenBack reports whether the mapping belongs to a file system that writes pages back: any but tmpfs and hugetlbfs.
// A character device does not count. A file that cannot be found counts as one that is written back.
func (m *mapping) writtenBack() bool {
	var fs unix.Statfs_t
	if strings.HasPrefix(m.name, "/dev/") {
		var st unix.Stat_t
		if unix.Stat(m.name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR {
			return false
		}
	}
	if unix.Statfs(m.name, &fs) != nil {
		return true
	}
	return fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.HUGETLBFS_MAGIC
}
