// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Catalog has the files of recordings, from the newest to the oldest.
type Catalog struct {
	Files   []CatalogFile
	More    bool // there are older ones
	Folders []CatalogFolder
}

// A CatalogFile is a file of a recording. Of one that is being written, or was not looked at yet, the Entry has only
// path, output, bytes and, for the former, the state.
type CatalogFile struct {
	Entry
	Begun time.Time // as its name says
}

// A CatalogFolder is a folder of recordings.
type CatalogFolder struct {
	Path        string
	Free, Total int64 // of its file system, in bytes
	Err         error // why folder and files are not known, such as one that wraps ErrHangs; nil: they are
}

// studyPatience is the maximum wait for what files that nobody has looked at contain.
const studyPatience = 500 * time.Millisecond

// Catalog returns the newest files, at most most, of those that are older than the file named before, or of all if
// before is empty. It does not wait for a disk that hangs, and reads no pictures. What a file contains is read once, as
// long as the file does not change. The error says that before is not the name of a recording.
func (r *Recordings) Catalog(before string, most int) (Catalog, error) {
	all := Catalog{}
	var end time.Time
	if before != "" {
		var err error
		if end, err = begunOf(before); err != nil {
			return all, fmt.Errorf("%w: %q", ErrNoFile, before)
		}
	}
	r.mu.Lock()
	list := slices.Collect(maps.Values(r.catalogs))
	r.mu.Unlock()
	older := func(f ownFile) bool {
		return before == "" || cmp.Or(f.begun.Compare(end), cmp.Compare(filepath.Base(f.path), before)) < 0
	}
	var mu sync.Mutex
	var reading sync.WaitGroup
	for _, c := range list {
		reading.Go(func() {
			found, folder := c.newest(older, most)
			mu.Lock()
			defer mu.Unlock()
			all.Files = append(all.Files, found...)
			all.Folders = append(all.Folders, folder)
		})
	}
	reading.Wait()
	slices.SortFunc(all.Files, func(a, b CatalogFile) int {
		return cmp.Or(b.Begun.Compare(a.Begun), cmp.Compare(filepath.Base(b.Path), filepath.Base(a.Path)))
	})
	if all.More = len(all.Files) > most; all.More {
		all.Files = all.Files[:most]
	}
	slices.SortFunc(all.Folders, func(a, b CatalogFolder) int { return cmp.Compare(a.Path, b.Path) })
	all.Folders = slices.CompactFunc(all.Folders, func(a, b CatalogFolder) bool { return a.Path == b.Path && (a.Err == nil) == (b.Err == nil) })
	return all, nil
}

// A catalog has the files of one output's recording.
type catalog struct {
	folder atomic.Pointer[folder]
	opened openedFiles
	videos parsedVideos
	turn   chan struct{} // holds a value while something waits for the disk

	mu      sync.Mutex
	known   map[string]known // by the paths of the files
	reading chan struct{}    // closed when the files have been read that were not known; nil: none are being read
}

// known describes a file as it was when it had this size and time.
type known struct {
	bytes   int64
	changed time.Time
	entry   Entry
}

func newCatalog() *catalog {
	return &catalog{videos: parsedVideos{turn: make(chan struct{}, 1)}, turn: make(chan struct{}, 1), known: map[string]known{}}
}

// ask calls do, which accesses the folder of a catalog, and returns its results. It returns an error that wraps
// ErrHangs instead if the disk does not answer in time; do then goes on, and nothing else asks until it has returned.
func ask[T any](c *catalog, do func(*folder) (T, error)) (T, error) {
	d := c.folder.Load()
	late := time.NewTimer(statPatience)
	defer late.Stop()
	hangs := answer[T]{err: fmt.Errorf("%w: %s has not answered for %v: check the disk", ErrHangs, d.directory, statPatience)}
	if err := d.disks.Hang(d.directory); err != nil {
		return hangs.result, err
	}
	select {
	case c.turn <- struct{}{}:
	case <-late.C:
		return hangs.result, hangs.err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := begin(ctx, func() (T, error) {
		defer func() { <-c.turn }() // ends: ask has sent a value
		return do(d)
	})
	select {
	case a := <-done:
		return a.result, a.err
	case <-late.C:
		return hangs.result, hangs.err
	}
}

// newest returns the newest files for which older returns true, one more than most if there are so many.
func (c *catalog) newest(older func(ownFile) bool, most int) ([]CatalogFile, CatalogFolder) {
	type answer struct {
		files  []ownFile
		folder CatalogFolder
	}
	a, err := ask(c, func(d *folder) (a answer, err error) {
		if a.folder.Free, a.folder.Total, err = spaceOf(d.directory); err == nil {
			a.files, err = d.own()
		}
		return a, err
	})
	d := c.folder.Load()
	a.folder.Path, a.folder.Err = d.directory, err
	if err != nil {
		return nil, a.folder
	}
	c.forget(a.files)
	a.files = slices.DeleteFunc(a.files, func(f ownFile) bool { return !older(f) })
	slices.Reverse(a.files)
	a.files = a.files[:min(len(a.files), most+1)]
	c.study(d, a.files)
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []CatalogFile
	for _, f := range a.files {
		e := Entry{}
		if d.writing.has(f.path) {
			e.State = BeingWritten
		} else if k := c.known[f.path]; k.is(f) {
			e = k.entry
		}
		e.Path, e.Output, e.Bytes = f.path, d.name, f.bytes
		list = append(list, CatalogFile{e, f.begun})
	}
	return list, a.folder
}

func (k known) is(f ownFile) bool { return k.bytes == f.bytes && k.changed.Equal(f.changed) }

// forget drops what is known of files that are not in the list of all.
func (c *catalog) forget(all []ownFile) {
	there := map[string]bool{}
	for _, f := range all {
		there[f.path] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(path string, _ known) bool { return !there[path] })
}

// study reads the files of a list that are not known, and waits for that up to studyPatience.
func (c *catalog) study(d *folder, list []ownFile) {
	c.mu.Lock()
	if c.reading == nil {
		var missing []ownFile
		for _, f := range list {
			if !c.known[f.path].is(f) && !d.writing.has(f.path) {
				missing = append(missing, f)
			}
		}
		if len(missing) > 0 {
			c.reading = make(chan struct{})
			go c.read(missing, c.reading)
		}
	}
	reading := c.reading
	c.mu.Unlock()
	if reading == nil {
		return
	}
	late := time.NewTimer(studyPatience)
	defer late.Stop()
	select {
	case <-reading:
	case <-late.C:
	}
}

// read reads what files contain, and closes done.
func (c *catalog) read(list []ownFile, done chan struct{}) {
	for _, f := range list {
		e, _ := List(context.Background(), f.path) // cannot fail: the context does not end
		if e.State == BeingWritten {
			continue // it is about to be finished
		}
		c.mu.Lock()
		c.known[f.path] = known{f.bytes, f.changed, e}
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = nil
	close(done)
}
