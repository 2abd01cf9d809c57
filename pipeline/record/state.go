// SPDX-License-Identifier: Apache-2.0

package record

import (
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
	Free    int64 // free bytes of the folder's file system; negative: not known
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

// look asks for the free space.
func (x *space) look(folder string) {
	var disk unix.Statfs_t
	free := int64(-1)
	if unix.Statfs(folder, &disk) == nil {
		free = int64(disk.Bavail) * disk.Bsize
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.free, x.looks = free, false
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
	x, now := &s.space, time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.config.Disks.Hang(s.config.Directory) != nil || x.looks && now.Sub(x.asked) > statPatience {
		return -1
	}
	if !x.looks && now.Sub(x.asked) >= askEvery {
		x.asked, x.looks = now, true
		go x.look(s.config.Directory)
	}
	return x.free
}
