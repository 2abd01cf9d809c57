// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"fmt"
	"io"
	"path"
	"strings"
)

// cpio writes an archive in the newc format, which the kernel unpacks as its initramfs (Linux
// Documentation/driver-api/early-userspace/buffer-format.rst). Everything belongs to root. The first error stays and
// is what close returns.
type cpio struct {
	w     io.Writer
	inode int
	off   int64
	dirs  map[string]bool
	err   error
}

const (
	modeDir     = 0o040000
	modeRegular = 0o100000
	modeLink    = 0o120000
	modeChar    = 0o020000
	trailer     = "TRAILER!!!"
)

func newCPIO(w io.Writer) *cpio { return &cpio{w: w, dirs: map[string]bool{".": true, "/": true}} }

// dir adds a folder with those above it.
func (c *cpio) dir(name string) {
	name = path.Clean(name)
	if c.dirs[name] {
		return
	}
	c.dir(path.Dir(name))
	c.dirs[name] = true
	c.entry(name, modeDir|0o755, 0, 0, 0, nil)
}

// file adds size bytes of r with permission bits perm.
func (c *cpio) file(name string, perm uint32, size int64, r io.Reader) {
	c.dir(path.Dir(name))
	c.entry(name, modeRegular|perm&0o7777, size, 0, 0, r)
}

// link adds a symbolic link.
func (c *cpio) link(name, target string) {
	c.dir(path.Dir(name))
	c.entry(name, modeLink|0o777, int64(len(target)), 0, 0, strings.NewReader(target))
}

// char adds a character device.
func (c *cpio) char(name string, major, minor uint32) {
	c.dir(path.Dir(name))
	c.entry(name, modeChar|0o600, 0, major, minor, nil)
}

// close writes the trailer and returns the first error.
func (c *cpio) close() error {
	c.entry(trailer, 0, 0, 0, 0, nil)
	return c.err
}

func (c *cpio) entry(name string, mode uint32, size int64, major, minor uint32, r io.Reader) {
	if c.err != nil {
		return
	}
	if size > 1<<32-1 {
		c.err = fmt.Errorf("vjetson: %s: %d bytes are too many for an initramfs", name, size)
		return
	}
	c.inode++
	stored := name
	if path.IsAbs(name) {
		stored = name[1:]
	}
	// magic, inode, mode, uid, gid, links, time, size, device of the file, device of the node, name's size, check
	c.printf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", c.inode, mode, 0, 0, 1, 0, size,
		0, 0, major, minor, len(stored)+1, 0, stored)
	c.pad()
	if r == nil || c.err != nil {
		return
	}
	n, err := io.Copy(c.w, io.LimitReader(r, size))
	c.off += n
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		c.err = fmt.Errorf("vjetson: %s into the initramfs: %w", name, err)
	}
	c.pad()
}

func (c *cpio) printf(format string, args ...any) {
	if c.err == nil {
		var n int
		n, c.err = fmt.Fprintf(c.w, format, args...)
		c.off += int64(n)
	}
}

// pad goes on to a multiple of 4 bytes.
func (c *cpio) pad() {
	if n := -c.off & 3; n != 0 {
		c.printf("%s", "\x00\x00\x00"[:n])
	}
}
