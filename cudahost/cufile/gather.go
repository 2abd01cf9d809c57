// SPDX-License-Identifier: Apache-2.0

package cufile

import "golang.org/x/sys/unix"

// most is the maximum number of transfers of a batch that are combined. It is small, because combining is meant for a
// frame whose beginning and end are in separate memory.
const most = 8

// iovec is struct iovec of the kernel.
type iovec struct {
	base uintptr
	size uint64
}

// together implements backend. It combines direct writes that continue each other in the file.
func (c *compat) together(ops []Op) (n int) {
	f, at, left := ops[0].File, ops[0].FileOffset, int(c.driver.settings().MaxDirectIO)<<10
	for n < min(len(ops), most) {
		op := ops[n]
		left -= op.Size
		if !op.Write || op.File != f || op.FileOffset != at || left < 0 || !f.straight(op) {
			break
		}
		at += int64(op.Size)
		n++
	}
	return max(n, 1)
}

// straight reports whether a transfer can bypass the page cache.
func (f *File) straight(op Op) bool {
	addr := op.Base + uintptr(op.Offset)
	return f.direct.fd >= 0 && op.Size > 0 && (op.FileOffset|int64(op.Size))&int64(f.align-1) == 0 && addr%uintptr(f.memory) == 0
}

// gather writes several pieces with one system call, and reports whether everything was written. Several calls would be
// slower: while a file grows, the kernel locks it during each call until the disk has answered.
func (c *compat) gather(ops []Op) bool {
	f := ops[0].File
	t := &transfer{fd: f.direct.fd, fdPlace: f.direct.place, write: true, place: -1, off: ops[0].FileOffset}
	for _, op := range ops {
		t.vector = append(t.vector, iovec{op.Base + uintptr(op.Offset), uint64(op.Size)})
		t.n += op.Size
	}
	whole := make(chan bool, 1)
	t.done = func(n int, errno unix.Errno) { whole <- errno == 0 && n == t.n }
	c.engine.start([]*transfer{t})
	return <-whole // ends: with the transfer, as a call of the kernel does
}
