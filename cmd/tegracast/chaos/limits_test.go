// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A memoryGroup is a control group, version 1 or 2, with a memory limit.
type memoryGroup struct {
	folder string
	limit  string // name of the file for the limit
	used   string
	none   string // the limit's value for no limit
}

// newMemoryGroup creates a group until the test ends. It returns nil if this machine has no writable memory control
// group.
func newMemoryGroup(t *testing.T) *memoryGroup {
	t.Helper()
	name := fmt.Sprintf("tegracast-chaos-%d", os.Getpid())
	for _, g := range []memoryGroup{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "-1"},
		{"/sys/fs/cgroup", "memory.max", "memory.current", "max"},
	} {
		g.folder = filepath.Join(g.folder, name)
		if os.Mkdir(g.folder, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			if err := os.Remove(g.folder); err != nil {
				t.Logf("a control group is left behind: %v", err)
			}
		})
		if _, err := os.Stat(filepath.Join(g.folder, g.limit)); err == nil {
			return &g
		}
	}
	return nil
}

func (g *memoryGroup) add(pid int) error {
	if g == nil {
		return nil
	}
	return os.WriteFile(filepath.Join(g.folder, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600)
}

// has returns the memory used by the group's processes.
func (g *memoryGroup) has() (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.folder, g.used))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// limitTo limits the group's memory; 0: no limit. The kernel may temporarily refuse a limit below the current usage.
func (g *memoryGroup) limitTo(bytes int64) error {
	value := g.none
	if bytes > 0 {
		value = strconv.FormatInt(bytes, 10)
	}
	err := os.WriteFile(filepath.Join(g.folder, g.limit), []byte(value), 0o600)
	if bytes > 0 && errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}

// descriptors returns the file descriptors of a process.
func descriptors(pid int) ([]int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	numbers := make([]int, 0, len(list))
	for _, e := range list {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers, err
}

// limitDescriptors limits the number of file descriptors of a process; 0: the unit's limit. It ignores a process that has
// ended.
func limitDescriptors(pid int, limit uint64) error {
	if limit == 0 {
		limit = 8192
	}
	err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: 8192}, nil)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
