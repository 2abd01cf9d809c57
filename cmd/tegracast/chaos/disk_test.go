// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// diskSize is the size of the small disk, in the format of tmpfs.
const diskSize = "96m"

// A disk is a small file system in memory. The service accesses it through a file system of the test, which can refuse or
// delay writes.
type disk struct {
	folder   string // as seen by the service
	behind   string // without the test's file system
	readOnly atomic.Bool
	holdUp   atomic.Int64 // delay of each operation that writes, ns
}

// newDisk mounts a disk until the test ends. It fails without FUSE.
func newDisk(t *testing.T) *disk {
	t.Helper()
	dir := t.TempDir()
	d := &disk{folder: filepath.Join(dir, "disk"), behind: filepath.Join(dir, "behind")}
	for _, path := range []string{d.folder, d.behind} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("tmpfs", d.behind, "tmpfs", 0, "size="+diskSize); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.behind, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	root, err := fs.NewLoopbackRoot(d.behind)
	if err != nil {
		t.Fatal(err)
	}
	o := &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "chaos", AllowOther: true}}
	if _, err := fs.Mount(d.folder, &node{root.(*fs.LoopbackNode), d}, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.holdUp.Store(0)
		d.readOnly.Store(false)
		// Mount namespaces that others have created meanwhile also contain the disk, so its server runs until this
		// process ends.
		if err := unix.Unmount(d.folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

// writes is called before each operation that writes, and returns its error.
func (d *disk) writes() syscall.Errno {
	time.Sleep(time.Duration(d.holdUp.Load()))
	if d.readOnly.Load() {
		return syscall.EROFS
	}
	return 0
}

// ballast returns the path of the file that fills the disk.
func (d *disk) ballast() string { return filepath.Join(d.behind, "ballast") }

// fill fills the disk.
func (d *disk) fill() error {
	f, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	defer f.Close()
	for zeros := make([]byte, 1<<16); err == nil; {
		_, err = f.Write(zeros)
	}
	return nil // the disk is full
}

// node is a file or a folder of the disk.
type node struct {
	*fs.LoopbackNode
	disk *disk
}

// WrapChild implements fs.NodeWrapChilder.
func (n *node) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{child.(*fs.LoopbackNode), n.disk}
}

const writable = syscall.O_WRONLY | syscall.O_RDWR | syscall.O_TRUNC

func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&writable != 0 {
		if errno := n.disk.writes(); errno != 0 {
			return nil, 0, errno
		}
	}
	f, fuseFlags, errno := n.LoopbackNode.Open(ctx, flags&^syscall.O_DIRECT)
	return n.disk.file(f), fuseFlags, errno
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.disk.writes(); errno != 0 {
		return nil, nil, 0, errno
	}
	inode, f, fuseFlags, errno := n.LoopbackNode.Create(ctx, name, flags&^syscall.O_DIRECT, mode, out)
	return inode, n.disk.file(f), fuseFlags, errno
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.disk.writes(); errno != 0 {
		return nil, errno
	}
	return n.LoopbackNode.Mkdir(ctx, name, mode, out)
}

func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	if errno := n.disk.writes(); errno != 0 {
		return errno
	}
	return n.LoopbackNode.Unlink(ctx, name)
}

func (n *node) Rename(ctx context.Context, name string, to fs.InodeEmbedder, as string, flags uint32) syscall.Errno {
	if errno := n.disk.writes(); errno != 0 {
		return errno
	}
	return n.LoopbackNode.Rename(ctx, name, to, as, flags)
}

func (n *node) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if errno := n.disk.writes(); errno != 0 {
		return errno
	}
	return n.LoopbackNode.Setattr(ctx, f, in, out)
}

// file is an open file of the disk.
type file struct {
	*fs.LoopbackFile
	disk *disk
}

func (d *disk) file(f fs.FileHandle) fs.FileHandle {
	if open, is := f.(*fs.LoopbackFile); is {
		return &file{open, d}
	}
	return f
}

// PassthroughFd directs all operations of the kernel to this process.
func (*file) PassthroughFd() (int, bool) { return 0, false }

func (f *file) Write(ctx context.Context, data []byte, at int64) (uint32, syscall.Errno) {
	if errno := f.disk.writes(); errno != 0 {
		return 0, errno
	}
	return f.LoopbackFile.Write(ctx, data, at)
}

func (f *file) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	if errno := f.disk.writes(); errno != 0 {
		return errno
	}
	return f.LoopbackFile.Fsync(ctx, flags)
}

func (f *file) Allocate(ctx context.Context, at, size uint64, mode uint32) syscall.Errno {
	if errno := f.disk.writes(); errno != 0 {
		return errno
	}
	return f.LoopbackFile.Allocate(ctx, at, size, mode)
}
