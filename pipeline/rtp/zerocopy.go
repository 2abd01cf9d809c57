package rtp

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// zeroCopy is segments with MSG_ZEROCOPY (Linux Documentation/networking/msg_zerocopy.rst): the kernel sends from the
// frame's own memory and tells on the socket's error queue when it has let go.
type zeroCopy struct {
	segments
	calls  uint32   // the next call's number, as the kernel counts
	trains []*Train // that the last calls were for, by number
	copied bool     // the kernel has made copies after all: it costs more than it saves
	note   mmsghdr  // for the error queue
	notes  [128]byte
}

// maxInFlight is how many calls may be unfinished.
const maxInFlight = 4096

func newZeroCopy(fd int) (*zeroCopy, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1); err != nil {
		return nil, os.NewSyscallError("setsockopt SO_ZEROCOPY", err)
	}
	return &zeroCopy{segments: *newSegments(), trains: make([]*Train, maxInFlight)}, nil
}

func (z *zeroCopy) send(fd int, t *Train, from, to int) (packets, bytes int, errno unix.Errno) {
	if t.vectors != 1 {
		return z.segments.send(fd, t, from, to)
	}
	at := &z.trains[z.calls%maxInFlight]
	if *at != nil {
		if z.reap(fd); *at != nil {
			return 0, 0, unix.EAGAIN
		}
	}
	packets = z.prepare(t, from, to)
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&z.msg)), unix.MSG_DONTWAIT|unix.MSG_ZEROCOPY)
	if errno == 0 {
		t.inFlight.Add(1)
		*at = t
		z.calls++
	}
	return packets, int(n), errno
}

// reap takes the kernel's notes of what it has let go.
func (z *zeroCopy) reap(fd int) {
	for {
		z.note = mmsghdr{control: uintptr(unsafe.Pointer(&z.notes)), controlLen: uint64(len(z.notes))}
		_, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&z.note)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if errno != 0 {
			return // EAGAIN: nothing more
		}
		// cmsghdr, then sock_extended_err: errno, origin, type, code, pad, info, data
		if z.note.controlLen < unix.SizeofCmsghdr+16 {
			continue
		}
		e := z.notes[unix.SizeofCmsghdr:]
		if e[4] != unix.SO_EE_ORIGIN_ZEROCOPY || ne.Uint32(e) != 0 {
			continue
		}
		z.copied = z.copied || e[6]&unix.SO_EE_CODE_ZEROCOPY_COPIED != 0
		for from, to := ne.Uint32(e[8:]), ne.Uint32(e[12:]); ; from++ {
			if at := &z.trains[from%maxInFlight]; *at != nil {
				(*at).inFlight.Add(-1)
				*at = nil
			}
			if from == to {
				break
			}
		}
	}
}

// letGo forgets what is in flight, when the socket closes.
func (z *zeroCopy) letGo() {
	for i, t := range z.trains {
		if t != nil {
			t.inFlight.Add(-1)
			z.trains[i] = nil
		}
	}
}
