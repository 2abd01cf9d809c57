// SPDX-License-Identifier: Apache-2.0

package record

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A State is the state of an open recording.
type State struct {
	Waiting bool   // it waits for a trigger, and nothing is being saved
	File    string // path of the file that is being written; empty: none
	Bytes   int64  // of that file so far
	Folder  string
	Free    int64 // free bytes of the folder's file system; negative: not known
}

var began = time.Now()

// askEvery is the time between two looks at the free space.
const askEvery = 2 * time.Second

// space is the free space of a folder's file system, as it was a moment ago.
type space struct {
	free  atomic.Int64 // negative: not known
	asked atomic.Int64 // when the last look began, in ns since began; 0: there was none
	looks atomic.Bool  // it has not ended
}

// look asks for the free space.
func (x *space) look(folder string) {
	var disk unix.Statfs_t
	free := int64(-1)
	if unix.Statfs(folder, &disk) == nil {
		free = int64(disk.Bavail) * disk.Bsize
	}
	x.free.Store(free)
}

// State returns the state of the recording. It does not wait for the disk.
func (s *Sink) State() State {
	st := State{Waiting: s.config.Window != nil && !s.saving.Load(), Folder: s.config.Directory, Free: s.freeSpace()}
	if !st.Waiting {
		if g := s.writing.newest(); g != nil {
			st.File, st.Bytes = g.path(), g.size.Load()
		}
	}
	return st
}

// freeSpace returns the free space, and begins another look if the last one was askEvery ago. It is not known while the
// disk does not answer.
func (s *Sink) freeSpace() int64 {
	x, now := &s.space, time.Since(began)
	asked := time.Duration(x.asked.Load())
	if s.config.Disks.Hang(s.config.Directory) != nil || x.looks.Load() && now-asked > statPatience {
		return -1
	}
	if (asked == 0 || now-asked >= askEvery) && !x.looks.Load() && x.asked.CompareAndSwap(int64(asked), int64(now)) {
		x.looks.Store(true)
		go func() {
			x.look(s.config.Directory)
			x.looks.Store(false)
		}()
	}
	return x.free.Load()
}
