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

// A memoryGroup is a control group, version 1 or 2, whose memory can be limited.
type memoryGroup struct {
	folder string
	limit  string // name of the file with the limit
	used   string
	none   string // what the limit is without one
}

// newMemoryGroup makes one until the test ends. nil: this machine has no control group for memory that can be written.
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

// has is how much memory the processes of the group have.
func (g *memoryGroup) has() (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.folder, g.used))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// limitTo limits the memory of the group; 0: not. Less than the processes have may be refused for now.
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

// descriptors are the file descriptors that a process has.
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

// limitDescriptors sets how many file descriptors a process may have; 0: as many as the unit allows. One that has ended has no limit.
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
