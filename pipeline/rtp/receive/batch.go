// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"encoding/binary"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

const (
	batchSize  = 32
	packetRoom = 1<<16 + 64 // a datagram, or as many packets as the kernel puts together; the odd 64 keep them apart in the cache
	noteRoom   = 64         // bytes of control message: one of UDP_GRO
)

// A batch receives many packets in one call of the kernel, which hands packets of one size that came in a row over as
// one datagram when it can (UDP_GRO, udp(7)).
type batch struct {
	mem     []byte
	msgs    []udp.Message
	notes   []byte
	buffers []byte
}

// newBatch makes a batch for the socket fd.
func newBatch(fd int) (*batch, error) {
	heads, vecs, notes := batchSize*udp.MessageSize, batchSize*udp.VectorSize, batchSize*noteRoom
	mem, err := udp.Map(heads + vecs + notes + (batchSize+1)*packetRoom)
	if err != nil {
		return nil, err
	}
	b := &batch{
		mem: mem, msgs: udp.Messages(mem[:heads]),
		notes: mem[heads+vecs:][:notes], buffers: mem[heads+vecs+notes:],
	}
	iov := udp.Vectors(mem[heads : heads+vecs])
	for i := range b.msgs {
		iov[i] = udp.Vector{Base: udp.Address(b.buffers[i*packetRoom:]), Len: packetRoom}
		b.msgs[i].Vectors, b.msgs[i].Count = uintptr(unsafe.Pointer(&iov[i])), 1
		b.msgs[i].Control = udp.Address(b.notes[i*noteRoom:])
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1) // an old kernel delivers packet by packet
	return b, nil
}

// receive takes up to batchSize datagrams without waiting; none is no error.
func (b *batch) receive(fd int) (int, error) {
	for i := range b.msgs {
		b.msgs[i].ControlLen = noteRoom
	}
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[0])), batchSize, unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN, unix.ECONNREFUSED:
			return 0, nil
		default:
			return 0, os.NewSyscallError("recvmmsg", errno)
		}
	}
}

// datagram returns datagram i, the size of the packets in it, of which the last may be shorter, and whether all of it
// fitted.
func (b *batch) datagram(i int) (data []byte, size int, whole bool) {
	m := &b.msgs[i]
	n := int(min(m.Len, packetRoom))
	return b.buffers[i*packetRoom:][:n], b.segment(i, n), m.Flags&unix.MSG_TRUNC == 0
}

// segment reads the control message of UDP_GRO, an int; without one it is n.
func (b *batch) segment(i, n int) int {
	note := b.notes[i*noteRoom:][:b.msgs[i].ControlLen]
	const data = unix.SizeofCmsghdr
	if len(note) < data+4 || binary.NativeEndian.Uint32(note[8:]) != unix.SOL_UDP || binary.NativeEndian.Uint32(note[12:]) != unix.UDP_GRO {
		return n
	}
	if size := int(binary.NativeEndian.Uint32(note[data:])); size > 0 {
		return size
	}
	return n
}

// spare is room for a packet that is not of the batch.
func (b *batch) spare() []byte { return b.buffers[batchSize*packetRoom:][:packetRoom] }

func (b *batch) close() error { return unix.Munmap(b.mem) }
