// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"slices"
	"syscall"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// newFilter returns the filter of system calls for an architecture and the process pid. Calls that it refuses fail with
// EPERM.
func newFilter(known *arch.Info, device bool, pid uint64) seccomp.Filter {
	names := slices.Clone(allowed)
	if device {
		names = append(append(names, opening...), deviceCalls...)
	}
	allow := seccomp.SyscallGroup{Action: seccomp.ActionAllow}
	for _, name := range names {
		if !lacks(known, name) {
			allow.Names = append(allow.Names, name)
		}
	}
	for _, c := range conditional(device, pid) {
		if !lacks(known, c.Name) {
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
	}
}

// lacks reports whether an architecture need not have a call. One that it lacks otherwise is an error of LoadFilter.
func lacks(known *arch.Info, name string) bool {
	_, is := known.SyscallNames[name]
	return !is && slices.Contains(old, name)
}

// old are the calls that arm64 lacks, or names otherwise: it has the later call for each.
var old = []string{
	"access", "arch_prctl", "chmod", "dup2", "epoll_create", "epoll_wait", "eventfd", "fstatat", "getpgrp", "lstat", "mkdir", "newfstatat", "open", "pipe",
	"poll", "readlink", "rename", "rmdir", "select", "stat", "unlink",
}

// conditional are the calls whose arguments decide. Those with several entries need one that holds.
func conditional(device bool, pid uint64) (list []seccomp.NameWithConditions) {
	add := func(name string, c ...seccomp.Condition) {
		list = append(list, seccomp.NameWithConditions{Name: name, Conditions: c})
	}
	equal := func(argument uint32, value uint64) seccomp.Condition {
		return seccomp.Condition{Argument: argument, Operation: seccomp.Equal, Value: value}
	}
	lacking := func(argument uint32, bits uint64) seccomp.Condition {
		return seccomp.Condition{Argument: argument, Operation: seccomp.BitsNotSet, Value: bits}
	}
	other := func(argument uint32, value uint64) seccomp.Condition {
		return seccomp.Condition{Argument: argument, Operation: seccomp.NotEqual, Value: value}
	}
	const upper = 0xffffffff << 32 // of arguments of which the kernel takes the lower half

	add("clone", seccomp.Condition{Argument: 0, Operation: seccomp.BitsSet, Value: unix.CLONE_THREAD})
	// A descriptor could signal any process of the user.
	add("fcntl", lacking(1, upper), other(1, unix.F_SETOWN), other(1, unix.F_SETOWN_EX), other(1, unix.F_SETSIG))
	add("prctl", lacking(0, upper), other(0, unix.PR_SET_PDEATHSIG))
	add("tgkill", equal(0, pid))
	ofItself := []string{"prlimit64", "sched_setaffinity"}
	if device {
		ofItself = append(ofItself, "sched_setattr", "sched_setparam", "sched_setscheduler")
	}
	for _, name := range ofItself {
		for _, itself := range []uint64{0, pid} {
			add(name, equal(0, itself))
		}
	}
	// The limit of memory counts neither stacks that grow nor memory that could be shared.
	if device {
		add("mmap", lacking(3, unix.MAP_GROWSDOWN))
		// CUDA does not start without a socket at which it listens. Without connect these cannot send.
		for _, kind := range []uint64{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
			for _, flags := range []uint64{0, unix.SOCK_CLOEXEC} {
				add("socket", equal(0, unix.AF_UNIX), equal(1, kind|flags))
			}
		}
		return list
	}
	add("mmap", lacking(3, unix.MAP_GROWSDOWN|unix.MAP_SHARED))
	add("mmap", lacking(3, unix.MAP_GROWSDOWN|unix.MAP_ANONYMOUS))
	for before, name := range opening {
		add(name, lacking(uint32(before+1), unix.O_ACCMODE|unix.O_CREAT|unix.O_TRUNC))
	}
	return list
}

// opening are the calls that open files. The index of each is that of the argument before its flags.
var opening = []string{"open", "openat"}

// allowed are the calls of the Go runtime, the C library, and a library that computes.
var allowed = []string{
	"access", "arch_prctl", "brk", "clock_getres", "clock_gettime", "clock_nanosleep", "close", "close_range", "dup", "dup3",
	"epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd2", "exit", "exit_group", "faccessat", "faccessat2", "fadvise64",
	"flock", "fstat", "fstatat", "fstatfs", "futex", "get_mempolicy", "get_robust_list", "getcpu", "getcwd", "getdents64", "getegid", "geteuid",
	"getgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom", "getresgid", "getresuid", "getrusage", "getsockname", "getsockopt",
	"gettid", "gettimeofday", "getuid", "lseek", "lstat", "madvise", "mbind", "membarrier", "mincore", "mlock", "mprotect",
	"mremap", "munlock", "munmap", "nanosleep", "newfstatat", "pipe2", "poll", "ppoll", "pread64", "preadv", "pselect6", "read",
	"readlink", "readlinkat", "readv", "recvfrom", "recvmsg", "restart_syscall", "rseq", "rt_sigaction", "rt_sigprocmask",
	"rt_sigreturn", "rt_sigtimedwait", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr",
	"sched_getparam", "sched_getscheduler", "sched_yield", "sendmsg", "sendto", "set_mempolicy", "set_robust_list",
	"setitimer", "shutdown", "sigaltstack", "stat", "statfs", "statx", "sysinfo", "timer_create", "timer_delete",
	"timer_settime", "uname", "write", "writev",
}

// deviceCalls are the further calls of a GPU's driver, and those by which engines are cached.
var deviceCalls = []string{
	"bind", "chmod", "fallocate", "fchmod", "fchmodat", "fdatasync", "fsync", "ftruncate", "ioctl", "listen", "memfd_create", "mkdir", "mkdirat", "msync",
	"pwrite64", "pwritev", "rename", "renameat", "renameat2", "rmdir", "unlink", "unlinkat",
	"mlock2", "pipe", "dup2", "select", "eventfd", "epoll_create", "getgroups",
}
