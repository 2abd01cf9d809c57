// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// sharedMemory returns allocators of memory that other processes can map.
func sharedMemory(t *testing.T) map[string]Allocator {
	t.Helper()
	return map[string]Allocator{"host": open(t, Config{Backend: "host"}), "stand-in": openStandin(t)}
}

// TestReserve checks that all bytes are allocated if they are available, whatever signals interrupt, and that any other
// error ends the allocation.
func TestReserve(t *testing.T) {
	const length = 5<<20 + 1
	var got int64
	interrupted := false
	err := reserve(length, func(at, n int64) error {
		if interrupted = !interrupted; interrupted {
			return unix.EINTR
		}
		if at != got {
			t.Errorf("at %d, want %d", at, got)
		}
		got += n
		return nil
	})
	if err != nil || got != length {
		t.Errorf("%v, %d bytes of %d", err, got, length)
	}
	if err := reserve(length, func(_, _ int64) error { return unix.ENOSPC }); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
}

// TestShared checks that another mapping of the file sees the buffer's bytes at the offset returned by File, and that
// nobody can write to it, shrink it, grow it or punch holes.
func TestShared(t *testing.T) {
	for name, a := range sharedMemory(t) {
		b, err := a.AllocHost(4097*4, Mapped|Shared)
		if err != nil {
			t.Fatal(name, err)
		}
		file, offset := b.File()
		for i := range b.Bytes() {
			b.Bytes()[i] = byte(i * 7)
		}
		fd, length := int(file.Fd()), int(offset)+len(b.Bytes())
		other, err := unix.Mmap(fd, 0, length, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil || !bytes.Equal(other[offset:], b.Bytes()) {
			t.Fatal(name, err)
		}
		if _, err := unix.Mmap(fd, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: a mapping to write: %v", name, err)
		}
		for what, err := range map[string]error{
			"mprotect": unix.Mprotect(other, unix.PROT_READ|unix.PROT_WRITE), "punch": unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096),
			"shrink": unix.Ftruncate(fd, 4096), "grow": unix.Ftruncate(fd, 1<<20), "madvise": unix.Madvise(other, unix.MADV_REMOVE),
		} {
			if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		if _, err := unix.Pwrite(fd, []byte{1}, 4096); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: a write: %v", name, err)
		}
		want := bytes.Clone(b.Bytes())
		if err := b.Close(); err != nil || !bytes.Equal(other[offset:], want) { // the other process still has its bytes
			t.Error(name, err)
		}
		if err := errors.Join(unix.Munmap(other)); err != nil {
			t.Error(err)
		}
	}
}

// TestSharedRefusals checks that memory that cannot be shared, or an error on the way, leaves nothing behind.
func TestSharedRefusals(t *testing.T) {
	for name, a := range sharedMemory(t) {
		if _, err := a.AllocHost(4096, Shared|WriteCombined); !errors.Is(err, ErrFlags) {
			t.Error(name, err)
		}
		if b, err := a.AllocHost(4096, Default); err != nil {
			t.Error(name, err)
		} else if file, _ := b.File(); file != nil || b.Close() != nil {
			t.Errorf("%s: other memory has a file", name)
		}
	}
	var e *Error
	if _, err := openStandin(t).AllocHost(2*pageSize, Shared); !errors.As(err, &e) || e.Call != "cuPointerSetAttribute" {
		t.Error(err)
	}
}
