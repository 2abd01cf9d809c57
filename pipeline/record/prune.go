// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A folder holds the files of one recording.
type folder struct {
	directory, name, extension string // the extension is that of new files

	keep         Retention
	deleteOldest bool       // a full disk deletes the oldest finished file
	told         func(News) // may be nil
	disks        *Disks     // may be nil
	log          *slog.Logger
	writing      openFiles
	index        index
	opened       atomic.Pointer[openedFiles] // of its files, those that are read; nil: none is
	unmended     sync.Map                    // paths of files that could not be repaired
	last         time.Time                   // in the name of the newest file
}

func (d *folder) where() *folder { return d }

// ErrDirectory means that no file can be created in a folder, for example because it was deleted or is read-only.
var ErrDirectory = errors.New("the folder cannot hold recordings")

// stampLayout is the layout of the time in a file's name, without its "Z" and the point before the milliseconds.
const stampLayout = "20060102T150405.000"

// names calls take with the path of a file that begins at the given time, and returns that path. If the newest file's
// name has that time or a later one, the name has a millisecond more than it. As long as take returns an error that
// wraps fs.ErrExist, names tries the next millisecond. It wraps any other error in ErrDirectory.
func (d *folder) names(at time.Time, take func(path string) error) (string, error) {
	for at = latest(at, d.last.Add(time.Millisecond)); ; at = at.Add(time.Millisecond) {
		stamp := strings.Replace(at.UTC().Format(stampLayout), ".", "", 1) + "Z"
		path := filepath.Join(d.directory, d.name+"-"+stamp+d.extension)
		err := take(path)
		if err == nil {
			d.last = at
			d.enlist(path)
			return path, nil
		} else if !errors.Is(err, fs.ErrExist) {
			return path, fmt.Errorf("%w: %w", ErrDirectory, err)
		}
	}
}

// An openFile is a file that is being written.
type openFile struct {
	name   atomic.Pointer[string] // path; that of a ring's file changes
	size   atomic.Int64           // bytes so far, of a ring's file those of the event
	closed atomic.Bool
}

func (g *openFile) path() string { return *g.name.Load() }

// openFiles lists the files that are being written, which must not be deleted.
type openFiles struct {
	mu   sync.Mutex
	list []*openFile
}

// add adds a file that has just been created.
func (w *openFiles) add(g *openFile, path string) {
	g.name.Store(&path)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(slices.DeleteFunc(w.list, func(g *openFile) bool { return g.closed.Load() }), g)
}

func (w *openFiles) has(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.list, func(g *openFile) bool { return !g.closed.Load() && g.path() == path })
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
func (w *openFiles) newest() *openFile {
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

// reserve makes sure that there is disk space for size more bytes of a file, as makeRoom does.
func (s *Sink) reserve(g *segment, size int64) error {
	return s.makeRoom(func() error {
		err := g.reserve(size)
		if errors.Is(err, unix.ENOSPC) {
			s.ending.Wait() // the previous file frees what was allocated in advance
			err = g.reserve(size)
		}
		return err
	})
}

// makeRoom calls reserve, which allocates disk space. If the disk is full it deletes the oldest files, if configured,
// and repeats the call. The error wraps ErrFull if the disk remains full.
func (d *folder) makeRoom(reserve func() error) error {
	err := reserve()
	for errors.Is(err, unix.ENOSPC) {
		full := fmt.Errorf("%w: %w", ErrFull, err)
		if !d.deleteOldest {
			return full
		}
		list, other := d.finished()
		if other == nil && len(list) == 0 {
			other = errors.New("there is no older recording to delete")
		}
		if other == nil {
			other = d.delete(list[0], "the disk is full")
		}
		if other != nil {
			return fmt.Errorf("%w: %w", full, other)
		}
		err = reserve()
	}
	return err
}

// Files returns the files of a recording of frames, from oldest to newest.
func Files(directory, name string) ([]string, error) { return filesOf(directory, name, Extension) }

// filesOf returns the files of a recording, from oldest to newest.
func filesOf(directory, name, extension string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if isFileOf(e.Name(), name, extension) && e.Type().IsRegular() {
			list = append(list, filepath.Join(directory, e.Name()))
		}
	}
	slices.Sort(list)
	return list, nil
}

// isRecordingOf reports whether a file's name is one that a recording gives, whatever its format.
func isRecordingOf(file, name string) bool {
	return isFileOf(file, name, Extension) || isFileOf(file, name, VideoExtension)
}

// isFileOf reports whether a file's name is one that a recording gives.
func isFileOf(file, name, extension string) bool {
	stamp, is := strings.CutPrefix(file, name+"-")
	stamp, is2 := strings.CutSuffix(stamp, "Z"+extension)
	return is && is2 && len(stamp) == len(stampLayout)-1 && !strings.Contains(stamp, "/")
}
