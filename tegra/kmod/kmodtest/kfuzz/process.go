// SPDX-License-Identifier: Apache-2.0

package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// step is a system call of a child, which runs no Go code except the loop over its steps.
type step struct {
	trap uintptr
	args [6]uintptr
}

const steps = 12

// forkAndDo creates a child that performs the steps and ends.
//
//go:norace
//go:nosplit
func forkAndDo(script *[steps]step) (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if pid != 0 || errno != 0 {
		return pid, errno
	}
	for i := range script {
		s := &script[i]
		_, _, _ = syscall.RawSyscall6(s.trap, s.args[0], s.args[1], s.args[2], s.args[3], s.args[4], s.args[5])
	}
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// fork creates a child that uses what it has inherited.
func (t *thread) fork() unix.Errno {
	var script [steps]step
	for i := range t.IntN(steps) {
		script[i] = t.step(i)
	}
	for i := range script {
		if script[i].trap == 0 {
			script[i].trap = syscall.SYS_GETPID
		}
	}
	return t.child(&script)
}

// step returns an action of a child. Its structures are in the thread's own memory.
func (t *thread) step(i int) step {
	const getInfo, pin, put = uapi.CallGetInfo, uapi.CallPin, uapi.CallPut
	arg := t.room + 4*page + uintptr(i)*128
	ioctl := func(call uintptr) step { return step{syscall.SYS_IOCTL, [6]uintptr{uintptr(t.fd()), call, arg}} }
	switch t.IntN(6) {
	case 0: // writes memory, which is copied first
		addr, size := t.span(t.some(), 4)
		return step{unix.SYS_GETRANDOM, [6]uintptr{addr, size}}
	case 1:
		*(*uapi.Info)(unsafe.Pointer(at(arg))) = uapi.Info{Argsz: sizes[0]}
		return ioctl(getInfo)
	case 2, 3:
		addr, size := t.span(t.some(), 8)
		*(*uapi.Pin)(unsafe.Pointer(at(arg))) = uapi.Pin{Argsz: sizes[2], Flags: 1 + t.Uint32N(3), VA: uint64(addr), Size: uint64(size)}
		return ioctl(pin)
	case 4:
		*(*uapi.Put)(unsafe.Pointer(at(arg))) = uapi.Put{Argsz: sizes[4], Handle: 1 + t.Uint32N(64)}
		return ioctl(put)
	}
	return step{syscall.SYS_CLOSE, [6]uintptr{uintptr(t.fd())}}
}

// exec creates a child that performs two random steps and then executes a program that ends at once.
func (t *thread) exec() unix.Errno {
	const name, argv = 12 * page, 12*page + 64
	copy(unsafe.Slice((*byte)(unsafe.Pointer(at(t.room+name))), 64), "/bin/busybox\x00true\x00")
	*(*[3]uintptr)(unsafe.Pointer(at(t.room + argv))) = [3]uintptr{t.room + name, t.room + name + 13, 0}
	var script [steps]step
	for i := range script {
		script[i] = step{trap: syscall.SYS_GETPID}
	}
	script[0], script[1] = t.step(0), t.step(1)
	script[2] = step{syscall.SYS_EXECVE, [6]uintptr{t.room + name, t.room + argv, 0}}
	return t.child(&script)
}

// child runs a script in a child and waits for its end. The child may be killed.
func (t *thread) child(script *[steps]step) unix.Errno {
	pid, errno := forkAndDo(script)
	if errno != 0 {
		return errno
	}
	if t.one(4) {
		_ = unix.Kill(int(pid), unix.SIGKILL)
	}
	for {
		_, err := unix.Wait4(int(pid), nil, 0, nil)
		if err != unix.EINTR {
			return errnoOf(err)
		}
	}
}

// send passes a descriptor to any worker that receives it.
func (t *thread) send() unix.Errno {
	return errnoOf(unix.Sendmsg(fdIn, []byte{1}, unix.UnixRights(t.fd()), nil, unix.MSG_DONTWAIT))
}

func (t *thread) receive() unix.Errno {
	b, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(fdOut, b, rights, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return errnoOf(err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) == 0 {
		return unix.ENOMSG
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return unix.ENOMSG
	}
	return t.become(fds[0], t.IntN(devices))
}

// poll polls and reads the device, which supports neither.
func (t *thread) poll() unix.Errno {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(t.fd()), Events: unix.POLLIN}, {Fd: int32(t.fd()), Events: unix.POLLIN | unix.POLLOUT}}, 0)
	_, err := unix.Read(t.fd(), make([]byte, 8))
	return errnoOf(err)
}

// kick sends a signal to a random thread of the process.
func (t *thread) kick() unix.Errno {
	tid := int(t.tids[t.IntN(threads)].Load())
	if tid == 0 {
		return skipped
	}
	return errnoOf(unix.Tgkill(unix.Getpid(), tid, unix.SIGUSR1))
}

func (t *thread) affinity() unix.Errno {
	var set unix.CPUSet
	set.Set(t.IntN(2))
	set.Set(t.IntN(2))
	return errnoOf(unix.SchedSetaffinity(0, &set))
}
