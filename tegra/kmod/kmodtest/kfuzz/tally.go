// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxOperations = 64
	maxErrno      = 134
)

// tally counts operations and their results. All processes share it.
type tally struct {
	operations [maxOperations]struct {
		good    atomic.Uint64
		skipped atomic.Uint64
		errnos  [maxErrno]atomic.Uint64
	}
	injected atomic.Uint64 // allocations that failed
	faults   atomic.Uint64 // touches of unmapped memory
	wrong    atomic.Uint64 // undocumented results
}

// newTally maps the counters in a file, which it extends as necessary.
func newTally(f *os.File) (*tally, error) {
	size := int(unsafe.Sizeof(tally{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, fmt.Errorf("counters: %w", err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("counters: %w", err)
	}
	return (*tally)(unsafe.Pointer(unsafe.SliceData(b))), nil
}

func (t *tally) add(op int, errno unix.Errno) {
	o := &t.operations[op]
	switch {
	case errno == 0:
		o.good.Add(1)
	case errno == skipped:
		o.skipped.Add(1)
	case errno < maxErrno:
		o.errnos[errno].Add(1)
	}
}

// report returns a line for each operation, and the total number of operations that were not skipped.
func (t *tally) report(ops []operation) (string, uint64) {
	var s strings.Builder
	var all uint64
	for i := range ops {
		o := &t.operations[i]
		done := o.good.Load()
		var errnos strings.Builder
		for e := range o.errnos {
			if n := o.errnos[e].Load(); n > 0 {
				done += n
				fmt.Fprintf(&errnos, " %s=%d", unix.ErrnoName(unix.Errno(e)), n)
			}
		}
		all += done
		fmt.Fprintf(&s, "%-12s %8d done %8d good%s\n", ops[i].name, done, o.good.Load(), errnos.String())
	}
	return s.String(), all
}
