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

// files are those that are being written. They are not deleted.
type files struct {
	mu   sync.Mutex
	list []*segment
}

func (w *files) add(g *segment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(slices.DeleteFunc(w.list, func(g *segment) bool { return g.closed.Load() }), g)
}

func (w *files) has(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.list, func(g *segment) bool { return !g.closed.Load() && g.path() == path })
}

// open are the paths of those that are not closed.
func (w *files) open() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.list {
		if !g.closed.Load() {
			list = append(list, g.path())
		}
	}
	return list
}

// ErrFull is that of a disk without room.
var ErrFull = errors.New("the disk is full")

// reserve makes sure that size bytes more have their place in a file. Where the disk is full the oldest files are deleted, if the
// configuration says so. An error wraps ErrFull.
func (s *Sink) reserve(g *segment, size int64) error {
	err := g.reserve(size)
	if errors.Is(err, unix.ENOSPC) {
		s.ending.Wait() // the file before gives back what was allocated ahead
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

// prune deletes the oldest files of the recording, as long as they have more than Keep bytes.
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

// old is a file of the recording that is not being written, and how much of the disk it takes.
type old struct {
	path string
	size int64
}

// finished are the files of the recording that are not being written, from the oldest to the newest.
func (s *Sink) finished() ([]old, error) {
	paths, err := Files(s.config.Directory, s.config.Name)
	if err != nil {
		return nil, err
	}
	var list []old
	for _, path := range paths {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); errors.Is(err, fs.ErrNotExist) || s.writing.has(path) {
			continue
		} else if err != nil {
			return nil, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		list = append(list, old{path, min(st.Size, st.Blocks*512)}) // one may have holes
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

// Files are the files of a recording, from the oldest to the newest.
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
