package rtp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// iovec and mmsghdr are the kernel's structs on 64-bit Linux with addresses as integers. They lie outside the Go heap
// and point outside it or at memory that their owner keeps alive; a pointer type would put write barriers on them.
type iovec struct {
	base uintptr
	len  uint64
}

type mmsghdr struct {
	name       uintptr
	nameLen    uint32
	_          uint32
	iov        uintptr
	iovLen     uint64
	control    uintptr
	controlLen uint64
	flags      int32
	_          uint32
	len        uint32 // bytes sent or received
	_          uint32
}

// The layouts must be those of x/sys; a difference does not compile.
var (
	_ [unsafe.Sizeof(unix.Iovec{}) - unsafe.Sizeof(iovec{})]struct{}
	_ [unsafe.Offsetof(mmsghdr{}.len) - unsafe.Sizeof(unix.Msghdr{})]struct{}
	_ [unsafe.Offsetof(unix.Msghdr{}.Iov) - unsafe.Offsetof(mmsghdr{}.iov)]struct{}
	_ [unsafe.Offsetof(unix.Msghdr{}.Flags) - unsafe.Offsetof(mmsghdr{}.flags)]struct{}
)

const (
	iovecSize   = int(unsafe.Sizeof(iovec{}))
	mmsghdrSize = int(unsafe.Sizeof(mmsghdr{}))
)

// mapMemory returns n bytes of zeroed memory outside the Go heap, which unix.Munmap frees. A page costs nothing
// until it is touched.
func mapMemory(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("rtp: map %d bytes for packets: %w", n, err)
	}
	return b, nil
}

// address is where b begins.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// iovecs and mmsghdrs view mapped memory, which must be aligned to 8 bytes.
func iovecs(b []byte) []iovec {
	return unsafe.Slice((*iovec)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/iovecSize)
}

func mmsghdrs(b []byte) []mmsghdr {
	return unsafe.Slice((*mmsghdr)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/mmsghdrSize)
}
