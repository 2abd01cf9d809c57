// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A memfd is memory of this process that others can map read-only.
type memfd struct {
	file   *os.File
	memory []byte // the whole file, including the page in front of the buffer
}

// sealFutureWrite is F_SEAL_FUTURE_WRITE (fcntl(2), Linux 5.1): from then on nobody can write, except through existing
// mappings.
const sealFutureWrite = 0x10

// newMemfd creates a memfd for a buffer of size bytes, maps it, and then seals it: neither its length nor its seals can
// change any more, and this mapping remains the only writable one.
func newMemfd(size int) (*memfd, error) {
	fd, err := unix.MemfdCreate("tegracast-frames", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	m := &memfd{file: os.NewFile(uintptr(fd), "memfd:tegracast-frames")}
	if err := m.open(fd, withLeadingPage(size)); err != nil {
		return nil, errors.Join(fmt.Errorf("%d bytes of shared memory: %w", size, err), m.Close())
	}
	return m, nil
}

// reserve allocates length bytes in pieces, because before Linux 6.10 any signal interrupts fallocate, and Go sends
// signals to itself.
func reserve(length int64, fallocate func(at, length int64) error) error {
	const piece = 1 << 20
	for at := int64(0); at < length; {
		err := fallocate(at, min(piece, length-at))
		switch {
		case err == nil:
			at += piece
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
	return nil
}

func (m *memfd) open(fd, length int) (err error) {
	fallocate := func(at, length int64) error { return unix.Fallocate(fd, 0, at, length) }
	if err := reserve(int64(length), fallocate); err != nil { // fails now, rather than with a SIGBUS when a frame arrives
		return fmt.Errorf("fallocate: %w", err)
	}
	if m.memory, err = unix.Mmap(fd, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	if err := unix.Madvise(m.memory, unix.MADV_DONTFORK); err != nil {
		return fmt.Errorf("madvise(MADV_DONTFORK): %w", err)
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | sealFutureWrite | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("F_ADD_SEALS, which needs Linux 5.1: %w", err)
	}
	return nil
}

// bytes returns the buffer's bytes.
func (m *memfd) bytes(size int) []byte { return m.memory[pageSize : pageSize+size : pageSize+size] }

// Close unmaps the memory and closes the file.
func (m *memfd) Close() error {
	var err error
	if m.memory != nil {
		err = unix.Munmap(m.memory)
	}
	return errors.Join(err, m.file.Close())
}

// allocShared is AllocHost for Shared memory. It uses no huge pages: a memfd only gets them if the machine's
// administrator enables them for all shared memory.
func (a *hostAllocator) allocShared(size int, flags Flags) (*Buffer, error) {
	m, err := newMemfd(size)
	if err != nil {
		return nil, err
	}
	if err := unix.Mlock(m.memory); err != nil {
		a.warn.Do(func() { a.warnLimit(len(m.memory), err) })
	}
	bytes := m.bytes(size)
	return &Buffer{
		id: a.lastID.Add(1), flags: flags, invalidator: a.invalidator, file: m.file,
		bytes: bytes, addr: uintptr(unsafe.Pointer(&bytes[0])), free: m.Close,
	}, nil
}

// allocShared is AllocHost for Shared memory, which is registered with CUDA instead of being allocated by it.
func (c *CUDA) allocShared(size int, flags Flags) (*Buffer, error) {
	m, err := newMemfd(size)
	if err != nil {
		return nil, err
	}
	base := uintptr(unsafe.Pointer(&m.memory[0]))
	var device uintptr
	var info PointerInfo
	err = c.Device.withContext(func(d *driver) error {
		if err := d.call(cuMemHostRegister, base, uintptr(len(m.memory)), uintptr(flags&^Shared)); err != nil {
			return err
		}
		err := d.prepare(base, false, flags, &device) // it may differ from the host pointer, unlike with CUDA's own memory
		if err == nil {
			info, err = d.inspect(base)
		}
		if err != nil {
			_ = d.call(cuMemHostUnregister, base) // the first error is more informative
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("registering %d bytes of shared memory with CUDA: %w", len(m.memory), err), m.Close())
	}
	bytes := m.bytes(size)
	b := &Buffer{
		id: info.BufferID, flags: flags, invalidator: c.invalidator, file: m.file, bytes: bytes, addr: base + pageSize,
		free: func() error {
			err := c.Device.withContext(func(d *driver) error { return d.call(cuMemHostUnregister, base) })
			return errors.Join(err, m.Close())
		},
	}
	if device != 0 {
		b.dev = device + pageSize
	}
	return b, nil
}
