// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// TestReadOnlyDescriptor checks that a read-only descriptor permits queries and no changes.
func TestReadOnlyDescriptor(t *testing.T) {
	letIn(t, devicePath)
	asNobody(t, func(t *testing.T, writer *device) {
		d := &device{openFile(t, devicePath, unix.O_RDONLY)}
		efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(efd)
		i := d.info(t)
		if r, err := uapi.GetRegion(d.fd, 0); err != nil || r.Size == 0 {
			t.Errorf("GET_REGION: %+v, %v", r, err)
		}
		wantErrno(t, "QUERY", uapi.DoQuery(d.fd, &uapi.Query{Handle: 1}, nil), unix.ENOENT)
		for _, flags := range []uint32{uapi.PinToDevice, uapi.PinFromDevice, bothWays} {
			_, _, err := d.pin(anonymous(t, page), flags)
			wantErrno(t, fmt.Sprint("PIN with flags ", flags), err, unix.EACCES)
		}
		wantErrno(t, "PUT", uapi.DoPut(d.fd, 1), unix.EACCES)
		wantErrno(t, "ALLOC", uapi.DoAlloc(d.fd, &uapi.Alloc{Size: page}), unix.EACCES)
		wantErrno(t, "SET_EVENT", uapi.SetEvent(d.fd, uapi.EventRevoke, 0, efd), unix.EACCES)
		wantErrno(t, "SET_HALT", uapi.SetHalt(d.fd, nil), unix.EACCES)
		for _, op := range []uint32{uapi.ControlFence, uapi.ControlReset, uapi.ControlResume} {
			_, err := uapi.DoControl(d.fd, op, i.FenceGen)
			wantErrno(t, fmt.Sprint("CONTROL ", op), err, unix.EACCES)
		}
		if now := writer.info(t); now.State != i.State || now.FenceGen != i.FenceGen {
			t.Errorf("the fence changed: %+v, before %+v", now, i)
		}
		_, errno := tryMapping(d.fd, 0, page, readWrite, unix.MAP_SHARED)
		wantErrno(t, "mmap of registers for writing", errnoOf(errno), unix.EACCES)
	})
}

// ioctlOf is a call as a step of a forked child. Its structure is outside Go's memory.
type ioctlOf[T any] struct{ v *T }

func shared[T any](t *testing.T, v T) ioctlOf[T] {
	b := mapping(t, -1, page, readWrite, unix.MAP_SHARED|unix.MAP_ANON)
	p := (*T)(unsafe.Pointer(unsafe.SliceData(b)))
	*p = v
	return ioctlOf[T]{p}
}

// forkedCall forks a child that makes a call and ends with the call's errno as its status.
//
//go:norace
//go:nosplit
func forkedCall(fd, nr, arg uintptr) (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if pid != 0 || errno != 0 {
		return pid, errno
	}
	_, _, errno = syscall.RawSyscall(syscall.SYS_IOCTL, fd, nr, arg)
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(errno), 0, 0)
	}
}

func inFork(t *testing.T, fd int, nr uintptr, arg unsafe.Pointer) error {
	t.Helper()
	pid, errno := forkedCall(uintptr(fd), nr, uintptr(arg))
	if errno != 0 {
		t.Fatal(errno)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(int(pid), &status, 0, nil); err != nil || !status.Exited() {
		t.Fatalf("%v, status %#x", err, status)
	}
	return errnoOf(unix.Errno(status.ExitStatus()))
}

// TestForked uses the descriptor in a forked child. What the child pins is its own, and ends with it.
func TestForked(t *testing.T) {
	asNobody(t, func(t *testing.T, d *device) {
		revoked := d.event(t, uapi.EventRevoke)
		b := mapping(t, -1, 3*page, readWrite, unix.MAP_SHARED|unix.MAP_ANON|unix.MAP_POPULATE)
		mine, _ := d.mustPin(t, b[page:2*page])
		its := shared(t, uapi.Pin{Argsz: 64, Flags: bothWays, VA: address(b) + 2*page, Size: page})
		wantErrno(t, "PIN by a child", inFork(t, d.fd, uapi.CallPin, unsafe.Pointer(its.v)), 0)
		revoked.wait(t)
		if q := d.query(t, its.v.Handle); q.State != uapi.PinRevoked || q.Reason != uapi.ReasonMMExit {
			t.Errorf("the pin of a child that has ended: %+v", q)
		}
		if q := d.query(t, mine.Handle); q.State != uapi.PinLive {
			t.Errorf("the parent's pin: %+v", q)
		}
		d.live(t).put(t, its.v.Handle)
		theirs := shared(t, uapi.Put{Argsz: 16, Handle: mine.Handle})
		wantErrno(t, "PUT by a child of the parent's pin", inFork(t, d.fd, uapi.CallPut, unsafe.Pointer(theirs.v)), 0)
		wantErrno(t, "PUT after that", uapi.DoPut(d.fd, mine.Handle), unix.ENOENT)
	})
}

// TestDuplicated uses a duplicate of the descriptor after the original is closed.
func TestDuplicated(t *testing.T) {
	noLeak(t)
	d, other := open(t).live(t), open(t)
	n, err := unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	duplicate := &device{n}
	p, _ := d.mustPin(t, anonymous(t, page))
	if q := duplicate.query(t, p.Handle); q.Cookie != 0xc0ffee {
		t.Errorf("the duplicate says %+v", q)
	}
	d.close()
	if q, i := duplicate.query(t, p.Handle), other.info(t); q.State != uapi.PinLive || i.State != uapi.StateLive {
		t.Errorf("after the first was closed: %+v, %+v", q, i)
	}
	duplicate.close()
	if i := other.info(t); i.State != uapi.StateFenced {
		t.Errorf("after the last was closed: %+v", i)
	}
	other.live(t)
}

// TestPassed passes the descriptor through a socket. While it is in transit it keeps its pins, which end with the socket.
func TestPassed(t *testing.T) {
	noLeak(t)
	other := open(t)
	for _, taken := range []bool{true, false} {
		t.Run(map[bool]string{true: "taken", false: "lost"}[taken], func(t *testing.T) {
			d := open(t).live(t)
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			b := anonymous(t, page)
			p, _ := d.mustPin(t, b)
			if err := unix.Sendmsg(pair[0], []byte{1}, unix.UnixRights(d.fd), nil, 0); err != nil {
				t.Fatal(err)
			}
			d.close()
			if i := other.info(t); i.State != uapi.StateLive {
				t.Errorf("with the descriptor on its way: %+v", i)
			}
			if taken {
				r := &device{receive(t, pair[1])}
				if q := r.query(t, p.Handle); q.State != uapi.PinLive {
					t.Errorf("the descriptor that came: %+v", q)
				}
				_, errno := tryMapping(r.fd, p.MmapOffset, page, unix.PROT_READ, unix.MAP_SHARED)
				wantErrno(t, "mmap of the giver's pin", errnoOf(errno), unix.EOPNOTSUPP)
				_, _, err := r.pin(b, bothWays)
				wantErrno(t, "PIN of what the giver has pinned", err, unix.EBUSY)
				r.put(t, p.Handle)
				r.mustPin(t, b)
				r.close()
			}
			unix.Close(pair[0])
			unix.Close(pair[1])
			for end := time.Now().Add(patience); other.info(t).State != uapi.StateFenced; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("after the last was closed: %+v", other.info(t))
				}
			}
			other.live(t)
		})
	}
}

func receive(t *testing.T, socket int) int {
	t.Helper()
	b, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, b, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(os.NewSyscallError("recvmsg", err))
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	return fds[0]
}
