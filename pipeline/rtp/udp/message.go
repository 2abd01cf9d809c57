// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Vector and Message are the kernel's iovec and mmsghdr on 64-bit Linux, with addresses as integers. They are outside
// the Go heap and point outside it or to memory that their owner keeps alive; pointer types would require write
// barriers.
type Vector struct {
	Base uintptr
	Len  uint64
}

// Message is an mmsghdr.
type Message struct {
	name       uintptr
	nameLen    uint32
	_          uint32
	Vectors    uintptr // address of the first vector
	Count      uint64  // number of vectors
	Control    uintptr
	ControlLen uint64
	Flags      int32
	_          uint32
	Len        uint32 // number of bytes sent or received
	_          uint32
}

// Checks of the layouts against those in x/sys. A negative difference does not compile.
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

// Map returns n bytes of zeroed memory outside the Go heap, to be freed by unix.Munmap. A page costs nothing until it
// is touched.
func Map(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("rtp: map %d bytes for packets: %w", n, err)
	}
	return b, nil
}

// Address returns the address of b.
func Address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Vectors returns mapped memory, which must be aligned to 8 bytes, as a slice of vectors.
func Vectors(b []byte) []Vector {
	return unsafe.Slice((*Vector)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/VectorSize)
}

// Messages returns mapped memory, which must be aligned to 8 bytes, as a slice of messages.
func Messages(b []byte) []Message {
	return unsafe.Slice((*Message)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/MessageSize)
}
