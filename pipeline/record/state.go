// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A State is the state of an open recording.
type State struct {
	Waiting bool   // it waits for a trigger, and nothing is being saved
	File    string // path of the file that is being written; empty: none
	Bytes   int64  // of that file so far
	Folder  string
	Free    int64  // free bytes of the folder's file system; negative: not known
	Error   string // why encoded pictures are not recorded at the moment; empty: they are

	// Totals since the recording was opened.
	Frames  uint64        // recorded
	Missed  uint64        // encoded pictures that were not recorded; of a Sink its queue counts them
	Written uint64        // bytes of the frames that were recorded
	Files   uint64        // begun
	Busy    time.Duration // during which a write waited for the disk
}

// askEvery is the time between two looks at the free space.
const askEvery = 2 * time.Second

// space is the free space of a folder's file system, as it was a moment ago.
type space struct {
	mu    sync.Mutex
	free  int64     // negative: not known
	asked time.Time // when the last look began
	looks bool      // it has not ended
}

// spaceOf returns the free and the total space of a folder's file system, in bytes.
func spaceOf(folder string) (free, total int64, err error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: folder, Err: err}
	}
	return int64(disk.Bavail) * disk.Bsize, int64(disk.Blocks) * disk.Bsize, nil
}

// look asks for the free space.
func (x *space) look(folder string) {
	free, _, err := spaceOf(folder)
	if err != nil {
		free = -1
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.free, x.looks = free, false
}

// check checks that the folder exists, and looks at its free space. The error wraps ErrHangs if the disk does not answer.
func (x *space) check(folder string, disks *Disks) error {
	return disks.try(folder, statPatience, func() error {
		info, err := os.Stat(folder)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a folder", folder)
		}
		if err != nil {
			return fmt.Errorf("%w: create it, or name another one", err)
		}
		x.look(folder)
		return nil
	})
}

// State returns the state of the recording. It does not wait for the disk.
func (s *Sink) State() State {
	st := State{
		Waiting: s.config.Window != nil && !s.saving.Load(), Folder: s.directory, Free: s.space.bytes(s.directory, s.config.Disks),
		Frames: s.frames.Load(), Written: s.bytes.Load(), Files: s.files.Load(), Busy: time.Duration(s.waited.Load()),
	}
	if !st.Waiting {
		if g := s.writing.newest(); g != nil {
			st.File, st.Bytes = g.path(), g.size.Load()
		}
	}
	return st
}

// bytes returns the free space, and begins another look if the last one was askEvery ago. It is not known while the
// disk does not answer.
func (x *space) bytes(folder string, disks *Disks) int64 {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	if disks.Hang(folder) != nil || x.looks && now.Sub(x.asked) > statPatience {
		return -1
	}
	if !x.looks && now.Sub(x.asked) >= askEvery {
		x.asked, x.looks = now, true
		go x.look(folder)
	}
	return x.free
}
