// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost/cufile/hangtest"
)

func TestHangingDiskServer(t *testing.T) { hangtest.Serve(t) }

// TestTransfersNeedNoThreadOfTheirCaller checks that a transfer completes while the thread that has started it waits for
// another disk, which hangs, in a system call that cannot be interrupted. The transfer reads a pipe, which is written
// only then.
func TestTransfersNeedNoThreadOfTheirCaller(t *testing.T) {
	disk := hangtest.Mount(t)
	u, err := newURing()
	if err != nil {
		t.Skipf("NEEDS io_uring: %v", err)
	}
	file, err := os.Create(filepath.Join(disk.Dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(-1, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	list := []*transfer{{
		fd: pipe[0], fdPlace: -1, addr: uintptr(unsafe.Pointer(unsafe.SliceData(memory))), place: -1, n: 1,
		done: func(n int, errno unix.Errno) {
			if n != 1 || errno != 0 {
				t.Errorf("%d bytes, %v", n, errno)
			}
			close(read)
		},
	}}
	disk.Hang(t)
	waits := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with this function
		u.start(list)
		_, err := file.WriteString("x")
		waits <- err
	}()
	time.Sleep(100 * time.Millisecond)
	if _, err := unix.Write(pipe[1], []byte("x")); err != nil {
		t.Error(err)
	}
	select {
	case <-read:
	case <-time.After(20 * time.Second):
		t.Error("the transfer does not complete")
	}
	if len(waits) > 0 {
		t.Error("nothing waits for the disk")
	}
	disk.Answer(t)
	if err := <-waits; err != nil {
		t.Error(err)
	}
	<-read
	err = errors.Join(u.close(), file.Close(), unix.Close(pipe[0]), unix.Close(pipe[1]), unix.Munmap(memory))
	if err != nil {
		t.Error(err)
	}
}
