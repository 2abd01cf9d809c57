// SPDX-License-Identifier: Apache-2.0

package onnx

import (
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// mostKept limits the models that a cache keeps, without their weights.
const mostKept = 8

// settled is the least age of a file's last change. Two changes within a tick of the kernel's clock (10 ms at most) may
// leave the same times.
const settled = time.Second

// A cache keeps the models that were read last, because a configuration is checked several times before it runs.
type cache struct {
	now  func() time.Time
	mu   sync.Mutex
	list []kept // the newest last
}

// read has the models that Open has read.
var read = cache{now: time.Now}

type kept struct {
	path   string
	limits Limits
	model  *Model
	files  []version
}

// A version of a file changes whenever its content does.
type version struct {
	device, inode    uint64
	size             int64
	modified, change unix.Timespec
}

// open returns a kept model if its files are as they were, and otherwise reads it.
func (c *cache) open(path string, limits Limits) (*Model, error) {
	if m := c.find(path, limits); m != nil {
		return m, nil
	}
	before, began := versions(path, nil), c.now()
	m, err := open(path, limits)
	if err != nil {
		return nil, err
	}
	k := kept{path, limits, m, versions(path, m.Files)}
	if k.files == nil || before == nil || k.files[0] != before[0] || slices.ContainsFunc(k.files, func(v version) bool {
		return began.Sub(time.Unix(v.change.Unix())) < settled
	}) {
		return m, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list[max(0, len(c.list)-mostKept+1):], k)
	return m, nil
}

// find returns a kept model, or nil. It forgets one whose files have changed.
func (c *cache) find(path string, limits Limits) *Model {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.list, func(k kept) bool { return k.path == path && k.limits == limits })
	if i < 0 {
		return nil
	}
	k := c.list[i]
	c.list = slices.Delete(c.list, i, i+1)
	if now := versions(path, k.model.Files); now == nil || !slices.Equal(now, k.files) {
		return nil
	}
	c.list = append(c.list, k)
	return k.model
}

// versions returns those of a model's file and of the files with weights in its folder; nil: one cannot be had.
func versions(path string, weights []string) (list []version) {
	for _, name := range append([]string{filepath.Base(path)}, weights...) {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(filepath.Dir(path), name), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			return nil
		}
		list = append(list, version{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim})
	}
	return list
}
