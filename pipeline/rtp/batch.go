package rtp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	batchSize  = 64
	packetRoom = 9216 + 64 // a jumbo frame; the odd 64 keep the buffers apart in the cache
)

// A batch receives many packets in one call of the kernel.
type batch struct {
	mem     []byte
	msgs    []mmsghdr
	buffers []byte
}

func newBatch() (*batch, error) {
	heads, vecs := batchSize*mmsghdrSize, batchSize*iovecSize
	mem, err := mapMemory(heads + vecs + (batchSize+1)*packetRoom)
	if err != nil {
		return nil, err
	}
	b := &batch{mem: mem, msgs: mmsghdrs(mem[:heads]), buffers: mem[heads+vecs:]}
	iov := iovecs(mem[heads : heads+vecs])
	for i := range b.msgs {
		iov[i] = iovec{address(b.buffers[i*packetRoom:]), packetRoom}
		b.msgs[i].iov, b.msgs[i].iovLen = uintptr(unsafe.Pointer(&iov[i])), 1
	}
	return b, nil
}

// receive takes up to batchSize packets without waiting; none is no error.
func (b *batch) receive(fd int) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[0])), batchSize, unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN, unix.ECONNREFUSED:
			return 0, nil
		default:
			return 0, errno
		}
	}
}

// packet returns packet i and whether all of it fitted.
func (b *batch) packet(i int) ([]byte, bool) {
	m := &b.msgs[i]
	return b.buffers[i*packetRoom:][:min(m.len, packetRoom)], m.flags&unix.MSG_TRUNC == 0
}

// spare is room for a packet that is not of the batch.
func (b *batch) spare() []byte { return b.buffers[batchSize*packetRoom:][:packetRoom] }

func (b *batch) close() error { return unix.Munmap(b.mem) }
