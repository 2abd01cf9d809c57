// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/files"
)

// A Retention limits the finished files of a recording. The oldest ones beyond its limits are deleted; 0 means no limit.
type Retention struct {
	Size int64         // total bytes
	Age  time.Duration // since the end of a file
	Free int64         // bytes that stay free on the file system
}

// An index lists the files that a recording has begun, of each format those in a hidden file beside them, one name a
// line, from the oldest to the newest. Only these are deleted. If there is no such file, all files with the recording's
// name and its present format are taken to be its own.
type index struct {
	mu    sync.Mutex
	ranks map[string]int // by name, rising with age from the oldest file on; nil: not read yet
	last  int            // the highest rank
}

func (x *index) add(name string) {
	x.last++
	x.ranks[name] = x.last
}

func (x *index) remove(name string) { delete(x.ranks, name) }

// maxIndex is the maximum size of an index in bytes.
const maxIndex = 16 << 20

func (d *folder) indexPath(extension string) string {
	return filepath.Join(d.directory, "."+d.name+extension+".index")
}

// readIndex fills in the index, with those of its files that exist.
func (d *folder) readIndex() error {
	if d.index.ranks != nil {
		return nil
	}
	a, err := d.listed(Extension)
	if err != nil {
		return err
	}
	b, err := d.listed(VideoExtension)
	if err != nil {
		return err
	}
	d.index.ranks = map[string]int{}
	for len(a)+len(b) > 0 {
		if len(a) == 0 || len(b) > 0 && stampOf(b[0]) < stampOf(a[0]) {
			a, b = b, a
		}
		d.index.add(a[0])
		a = a[1:]
	}
	return nil
}

// listed returns the files of a format that are in the index, from the oldest to the newest.
func (d *folder) listed(extension string) ([]string, error) {
	paths, err := filesOf(d.directory, d.name, extension)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	var names []string
	for _, p := range paths {
		name := filepath.Base(p)
		there[name] = true
		names = append(names, name)
	}
	text, err := files.ReadRegular(d.indexPath(extension), maxIndex, "an index of recordings")
	switch {
	case errors.Is(err, fs.ErrNotExist) && extension == d.extension:
		return names, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil && extension != d.extension: // these stay
		d.log.Warn("the index of the recording's files of another format cannot be read: they are not deleted", "error", err)
		return nil, nil
	case err != nil:
		return nil, err
	}
	return slices.DeleteFunc(strings.Split(string(text), "\n"), func(name string) bool { return !there[name] }), nil
}

// change changes the index for files. A failure is only logged: the index in memory is still right, and is written as a
// whole at the next change.
func (d *folder) change(do func(x *index, name string), paths ...string) {
	d.index.mu.Lock()
	defer d.index.mu.Unlock()
	err := d.readIndex()
	if err == nil {
		changed := map[string]bool{}
		for _, path := range paths {
			do(&d.index, filepath.Base(path))
			changed[filepath.Ext(path)] = true
		}
		for extension := range changed {
			err = errors.Join(err, d.writeIndex(extension))
		}
	}
	if err != nil {
		d.log.Warn("the list of own recordings could not be written: files that it lacks are never deleted", "error", err)
	}
}

// writeIndex replaces the file of the index for a format. After a loss of power it has the old content or the new one.
func (d *folder) writeIndex(extension string) error {
	ranks := d.index.ranks
	names := slices.DeleteFunc(slices.Collect(maps.Keys(ranks)), func(name string) bool { return filepath.Ext(name) != extension })
	slices.SortFunc(names, func(a, b string) int { return ranks[a] - ranks[b] })
	return files.WriteSynced(d.indexPath(extension), 0o640, []byte(strings.Join(append(names, ""), "\n")))
}

// enlist adds a file that was begun to the index.
func (d *folder) enlist(path string) { d.change((*index).add, path) }

// unlist removes files that were deleted from the index.
func (d *folder) unlist(paths ...string) { d.change((*index).remove, paths...) }

// pruneEvery is the time between two checks of the limits, besides those before each file.
const pruneEvery = time.Minute

// pruneRegularly checks the limits until ctx ends, so that they hold while no file begins.
func (d *folder) pruneRegularly(ctx context.Context) {
	if d.keep == (Retention{}) {
		return
	}
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if err := d.prune(now); err != nil {
				d.log.Warn("old recordings could not be deleted", "error", err)
			}
		}
	}
}

// prune deletes the oldest finished files of the recording until the others are within the limits at time now. Files
// that are being written are neither counted nor deleted.
func (d *folder) prune(now time.Time) error {
	if d.keep == (Retention{}) {
		return nil
	}
	list, err := d.finished()
	if err != nil {
		return err
	}
	total := int64(0)
	for _, x := range list {
		total += x.used
	}
	lack, err := d.lackingSpace()
	if err != nil {
		return err
	}
	var gone []string
	for _, x := range list {
		old := d.keep.Age > 0 && now.Sub(x.changed) > d.keep.Age
		if !old && lack <= 0 && (d.keep.Size == 0 || total <= d.keep.Size) {
			break
		}
		if err = d.remove(x, "it is beyond the recording's limits"); err != nil {
			break
		}
		gone = append(gone, x.path)
		total, lack = total-x.used, lack-x.used
	}
	if len(gone) > 0 {
		d.unlist(gone...)
	}
	return err
}

// lackingSpace returns by how many bytes the file system has less free space than must stay free.
func (d *folder) lackingSpace() (int64, error) {
	if d.keep.Free == 0 {
		return 0, nil
	}
	free, total, err := spaceOf(d.directory)
	if err == nil && d.keep.Free >= total {
		err = fmt.Errorf("keep_free: %d bytes cannot stay free on a file system of %d: nothing is deleted", d.keep.Free, total)
	}
	return d.keep.Free - free, err
}

// An ownFile is a file of the recording's index.
type ownFile struct {
	path    string
	bytes   int64     // its size
	used    int64     // disk space that it uses, in bytes
	changed time.Time // when it was last written to
	begun   time.Time
	rank    int // in the index
}

// own returns the files of the recording's index, from the oldest to the newest.
func (d *folder) own() ([]ownFile, error) {
	var paths []string
	for _, extension := range []string{Extension, VideoExtension} {
		list, err := filesOf(d.directory, d.name, extension)
		if err != nil {
			return nil, err
		}
		paths = append(paths, list...)
	}
	var list []ownFile
	err := d.examine(paths, func(f ownFile) { list = append(list, f) })
	slices.SortFunc(list, func(a, b ownFile) int { return a.rank - b.rank })
	return list, err
}

// find returns the file of the recording's index with a name. The error wraps ErrNoFile if there is none.
func (d *folder) find(name string) (f ownFile, err error) {
	if !isRecordingOf(name, d.name) {
		return f, ErrNoFile
	}
	err = d.examine([]string{filepath.Join(d.directory, name)}, func(x ownFile) { f = x })
	if err == nil && f.path == "" {
		err = ErrNoFile
	}
	return f, err
}

// examine calls found for those files that are in the recording's index. In a sticky folder (inode(7)), where users
// cannot delete the files of others, it omits those of other users: with many links to one large file they could have
// the recordings deleted.
func (d *folder) examine(paths []string, found func(ownFile)) error {
	var folder unix.Stat_t
	if err := unix.Stat(d.directory, &folder); err != nil {
		return &os.PathError{Op: "stat", Path: d.directory, Err: err}
	}
	ranks, err := d.ranks(paths)
	if err != nil {
		return err
	}
	for i, path := range paths {
		if ranks[i] == 0 {
			continue
		}
		var st unix.Stat_t
		err := unix.Lstat(path, &st)
		foreign := err == nil && folder.Mode&unix.S_ISVTX != 0 && int(st.Uid) != os.Geteuid()
		if errors.Is(err, fs.ErrNotExist) || foreign {
			continue
		} else if err != nil {
			return &os.PathError{Op: "stat", Path: path, Err: err}
		}
		begun, err := begunOf(path)
		if err != nil {
			continue // no time that names gives
		}
		used := min(st.Size, st.Blocks*512) // a file may have holes
		found(ownFile{path: path, bytes: st.Size, used: used, changed: time.Unix(st.Mtim.Unix()), begun: begun, rank: ranks[i]})
	}
	return nil
}

// ranks returns the ranks of files in the index; 0: a file is not in it.
func (d *folder) ranks(paths []string) ([]int, error) {
	d.index.mu.Lock()
	defer d.index.mu.Unlock()
	if err := d.readIndex(); err != nil {
		return nil, err
	}
	var list []int
	for _, path := range paths {
		list = append(list, d.index.ranks[filepath.Base(path)])
	}
	return list, nil
}

// finished returns the files of the recording's index that are not being written, from the oldest to the newest.
func (d *folder) finished() ([]ownFile, error) {
	list, err := d.own()
	return slices.DeleteFunc(list, func(f ownFile) bool { return d.writing.has(f.path) }), err
}

// stampOf returns the part of a file's name that has its time.
func stampOf(path string) string {
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	return name[strings.LastIndex(name, "-")+1:]
}

// begunOf returns the time in the name of a file.
func begunOf(path string) (time.Time, error) {
	stamp := stampOf(path)
	seconds := len(stampLayout) - len(".000")
	if len(stamp) < seconds {
		return time.Time{}, errors.New("the name has no time")
	}
	return time.Parse(stampLayout, stamp[:seconds]+"."+strings.TrimSuffix(stamp[seconds:], "Z"))
}

// delete deletes a file, and removes it from the index. why is for the log.
func (d *folder) delete(x ownFile, why string) error {
	err := d.remove(x, why)
	if err == nil {
		d.unlist(x.path)
	}
	return err
}

// remove deletes a file, and ends what reads it.
func (d *folder) remove(x ownFile, why string) error {
	if err := os.Remove(x.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.opened.Load().close(x.path)
	d.log.Info("a recording was deleted", "file", x.path, "bytes", x.used, "why", why)
	d.reportNews(News{File: x.path, Deleted: true})
	return nil
}
