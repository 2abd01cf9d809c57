// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"path/filepath"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// Limits bound the resources of a process.
type Limits struct {
	Memory uint64 // bytes of private memory; 0: no limit
	Tasks  uint64 // threads of all processes of its user from which on it starts none, but spareTasks are always left; of no effect for root
	Device bool   // it uses a GPU: it may call drivers (ioctl), and write and rename files
}

// spareTasks are the threads that a process may start although its user has many, such as those of a desktop.
const spareTasks = 128

// Enter limits the calling process and all of its threads, for good. Libraries that it has loaded may start threads
// afterwards.
func Enter(l Limits) error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("limit of core files: %w", err)
	}
	if l.Memory > 0 {
		if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: l.Memory, Max: l.Memory}); err != nil {
			return fmt.Errorf("limit of memory: %w", err)
		}
	}
	if err := limitTasks(max(l.Tasks, userTasks()+spareTasks)); err != nil {
		return fmt.Errorf("limit of threads: %w", err)
	}
	known, err := arch.GetInfo("")
	if err != nil {
		return fmt.Errorf("limit of system calls: %w", err)
	}
	if err := seccomp.LoadFilter(newFilter(known, l.Device, uint64(unix.Getpid()))); err != nil {
		return fmt.Errorf("limit of system calls: %w", err)
	}
	return nil
}

func limitTasks(most uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &now); err != nil {
		return err
	}
	most = min(most, now.Max)
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: most, Max: most})
}

// userTasks counts the threads of the process's user, as far as /proc shows them.
func userTasks() (n uint64) {
	folders, _ := filepath.Glob("/proc/[0-9]*/task") // no error: the pattern is good
	for _, folder := range folders {
		var st unix.Stat_t
		if err := unix.Stat(folder, &st); err == nil && st.Uid == uint32(unix.Getuid()) {
			n += uint64(st.Nlink) - 2 // a folder for each
		}
	}
	return n
}
