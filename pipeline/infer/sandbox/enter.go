// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"syscall"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// Limits are what a process may use.
type Limits struct {
	Memory uint64 // bytes of private memory; 0: no limit
	Device bool   // it uses a GPU: it may call drivers (ioctl), and write and rename files
}

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
	filter, err := newFilter(l.Device)
	if err != nil {
		return err
	}
	if err := seccomp.LoadFilter(filter); err != nil {
		return fmt.Errorf("limit of system calls: %w", err)
	}
	return nil
}

// newFilter returns the filter of system calls. Calls that it refuses fail with EPERM.
func newFilter(device bool) (seccomp.Filter, error) {
	known, err := arch.GetInfo("")
	if err != nil {
		return seccomp.Filter{}, fmt.Errorf("limit of system calls: %w", err)
	}
	names := append([]string(nil), allowed...)
	conditions := []seccomp.NameWithConditions{
		{Name: "clone", Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.BitsSet, Value: unix.CLONE_THREAD}}},
	}
	if device {
		names = append(append(names, opening...), deviceCalls...)
	} else {
		for flags, name := range opening {
			conditions = append(conditions, seccomp.NameWithConditions{Name: name, Conditions: seccomp.ArgumentConditions{
				{Argument: uint32(flags + 1), Operation: seccomp.BitsNotSet, Value: unix.O_ACCMODE | unix.O_CREAT | unix.O_TRUNC},
			}})
		}
	}
	allow := seccomp.SyscallGroup{Action: seccomp.ActionAllow}
	for _, name := range names {
		if _, is := known.SyscallNames[name]; is { // arm64 lacks the old ones
			allow.Names = append(allow.Names, name)
		}
	}
	for _, c := range conditions {
		if _, is := known.SyscallNames[c.Name]; is {
			allow.NamesWithCondtions = append(allow.NamesWithCondtions, c)
		}
	}
	return seccomp.Filter{
		NoNewPrivs: true, Flag: seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{DefaultAction: seccomp.ActionErrno, Syscalls: []seccomp.SyscallGroup{
			allow,
			// A filter cannot look into its arguments; the C library falls back to clone.
			{Action: seccomp.ActionErrno | seccomp.Action(syscall.ENOSYS), Names: []string{"clone3"}},
		}},
	}, nil
}

// opening are the calls that open files. The index of each is that of the argument before its flags.
var opening = []string{"open", "openat"}

// allowed are the calls of the Go runtime, the C library, and a library that computes.
var allowed = []string{
	"access", "arch_prctl", "brk", "clock_getres", "clock_gettime", "clock_nanosleep", "close", "close_range", "dup", "dup3",
	"epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd2", "exit", "exit_group", "faccessat", "faccessat2", "fadvise64",
	"fcntl", "flock", "fstat", "fstatfs", "futex", "get_mempolicy", "get_robust_list", "getcpu", "getcwd", "getdents64", "getegid", "geteuid",
	"getgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom", "getresgid", "getresuid", "getrusage", "getsockname", "getsockopt",
	"gettid", "gettimeofday", "getuid", "lseek", "lstat", "madvise", "mbind", "membarrier", "mincore", "mlock", "mmap", "mprotect",
	"mremap", "munlock", "munmap", "nanosleep", "newfstatat", "pipe2", "poll", "ppoll", "prctl", "pread64", "preadv", "prlimit64", "pselect6", "read",
	"readlink", "readlinkat", "readv", "recvfrom", "recvmsg", "restart_syscall", "riscv_hwprobe", "rseq", "rt_sigaction", "rt_sigprocmask",
	"rt_sigreturn", "rt_sigtimedwait", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr",
	"sched_getparam", "sched_getscheduler", "sched_setaffinity", "sched_yield", "sendmsg", "sendto", "set_mempolicy", "set_robust_list",
	"setitimer", "shutdown", "sigaltstack", "stat", "statfs", "statx", "sysinfo", "tgkill", "timer_create", "timer_delete",
	"timer_settime", "uname", "write", "writev",
}

// deviceCalls are the further calls of a GPU's driver, and those by which engines are cached.
var deviceCalls = []string{
	"chmod", "fallocate", "fchmod", "fchmodat", "fdatasync", "fsync", "ftruncate", "ioctl", "memfd_create", "mkdir", "mkdirat", "msync",
	"pwrite64", "pwritev", "rename", "renameat", "renameat2", "rmdir", "sched_setscheduler", "sched_setattr", "unlink", "unlinkat",
	"mlock2", "pipe", "dup2", "select", "eventfd", "epoll_create", "sched_setparam", "tkill", "getgroups",
}
