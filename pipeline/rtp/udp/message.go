// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Vector and Message are the kernel's iovec and mmsghdr on 64-bit Linux with addresses as integers. They lie outside
// the Go heap and point outside it or at memory that their owner keeps alive; a pointer type would put write barriers
// on them.
type Vector struct {
	Base uintptr
	Len  uint64
}

// Message is a mmsghdr.
type Message struct {
	name       uintptr
	nameLen    uint32
	_          uint32
	Vectors    uintptr // where the first one lies
	Count      uint64  // of vectors
	Control    uintptr
	ControlLen uint64
	Flags      int32
	_          uint32
	Len        uint32 // bytes sent or received
	_          uint32
}

// The layouts must be those of x/sys; a difference does not compile.
var (
	_ [unsafe.Sizeof(unix.Iovec{}) - unsafe.Sizeof(Vector{})]struct{}
	_ [unsafe.Offsetof(Message{}.Len) - unsafe.Sizeof(unix.Msghdr{})]struct{}
	_ [unsafe.Offsetof(unix.Msghdr{}.Iov) - unsafe.Offsetof(Message{}.Vectors)]struct{}
	_ [unsafe.Offsetof(unix.Msghdr{}.Flags) - unsafe.Offsetof(Message{}.Flags)]struct{}
)

// Sizes of the structs in bytes.
const (
	VectorSize  = int(unsafe.Sizeof(Vector{}))
	MessageSize = int(unsafe.Sizeof(Message{}))
)

// Map returns n bytes of zeroed memory outside the Go heap, which unix.Munmap frees. A page costs nothing until it is
// touched.
func Map(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("rtp: map %d bytes for packets: %w", n, err)
	}
	return b, nil
}

// Address is where b begins.
func Address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Vectors views mapped memory, which must be aligned to 8 bytes, as vectors.
func Vectors(b []byte) []Vector {
	return unsafe.Slice((*Vector)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/VectorSize)
}

// Messages views mapped memory, which must be aligned to 8 bytes, as messages.
func Messages(b []byte) []Message {
	return unsafe.Slice((*Message)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/MessageSize)
}
