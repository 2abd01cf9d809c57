// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// openFiles lists the files that are being written, which must not be deleted.
type openFiles struct {
	mu   sync.Mutex
	list []*segment
}

func (w *openFiles) add(g *segment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(slices.DeleteFunc(w.list, func(g *segment) bool { return g.closed.Load() }), g)
}

func (w *openFiles) has(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.list, func(g *segment) bool { return !g.closed.Load() && g.path() == path })
}

// open returns the paths of the files that are not closed.
func (w *openFiles) open() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.list {
		if !g.closed.Load() {
			list = append(list, g.path())
		}
	}
	return list
}

// newest returns the newest file that is not closed, or nil if there is none.
func (w *openFiles) newest() *segment {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range slices.Backward(w.list) {
		if !g.closed.Load() {
			return g
		}
	}
	return nil
}

// ErrFull means that the disk is full.
var ErrFull = errors.New("the disk is full")

// reserve makes sure that there is disk space for size more bytes of a file. If the disk is full it deletes the oldest
// files, if configured. The error wraps ErrFull if the disk remains full.
func (s *Sink) reserve(g *segment, size int64) error {
	err := g.reserve(size)
	if errors.Is(err, unix.ENOSPC) {
		s.ending.Wait() // the previous file frees what was allocated in advance
		err = g.reserve(size)
	}
	for errors.Is(err, unix.ENOSPC) {
		full := fmt.Errorf("%w: %w", ErrFull, err)
		if !s.config.DeleteOldest {
			return full
		}
		list, other := s.finished()
		if other == nil && len(list) == 0 {
			other = errors.New("there is no older recording to delete")
		}
		if other == nil {
			other = s.delete(list[0])
		}
		if other != nil {
			return fmt.Errorf("%w: %w", full, other)
		}
		err = g.reserve(size)
	}
	return err
}

// prune deletes the oldest finished files of the recording until the finished ones have at most Keep bytes in total;
// with Keep 0 it deletes none. Files that are being written are neither counted nor deleted.
func (s *Sink) prune() error {
	if s.config.Keep == 0 {
		return nil
	}
	list, err := s.finished()
	if err != nil {
		return err
	}
	total := int64(0)
	for _, x := range list {
		total += x.size
	}
	for _, x := range list {
		if total <= s.config.Keep {
			break
		}
		if err := s.delete(x); err != nil {
			return err
		}
		total -= x.size
	}
	return nil
}

// old is a file of the recording to which nothing is being written. size is the disk space that it uses, in bytes.
type old struct {
	path string
	size int64
}

// finished returns the files of the recording that are not being written, from the oldest to the newest. In a sticky
// folder (inode(7)), where users cannot delete the files of others, it omits those of other users: with many links to
// one large file they could have the recordings deleted.
func (s *Sink) finished() ([]old, error) {
	paths, err := Files(s.config.Directory, s.config.Name)
	if err != nil {
		return nil, err
	}
	var folder unix.Stat_t
	if err := unix.Stat(s.config.Directory, &folder); err != nil {
		return nil, &os.PathError{Op: "stat", Path: s.config.Directory, Err: err}
	}
	var list []old
	for _, path := range paths {
		var st unix.Stat_t
		err := unix.Lstat(path, &st)
		foreign := err == nil && folder.Mode&unix.S_ISVTX != 0 && int(st.Uid) != os.Geteuid()
		if errors.Is(err, fs.ErrNotExist) || foreign || s.writing.has(path) {
			continue
		} else if err != nil {
			return nil, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		list = append(list, old{path, min(st.Size, st.Blocks*512)}) // a file may have holes
	}
	return list, nil
}

func (s *Sink) delete(x old) error {
	if err := os.Remove(x.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.log.Info("an old recording was deleted", "file", x.path, "bytes", x.size)
	return nil
}

// Files returns the files of a recording, from oldest to newest.
func Files(directory, name string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		stamp, is := strings.CutPrefix(e.Name(), name+"-")
		stamp, is2 := strings.CutSuffix(stamp, "Z"+Extension)
		if is && is2 && len(stamp) == len("20060102T150405000") && e.Type().IsRegular() {
			list = append(list, filepath.Join(directory, e.Name()))
		}
	}
	slices.Sort(list)
	return list, nil
}
