// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	page    = 4096
	threads = 4

	// The descriptors of a worker. Those of the device have reserved numbers, so that racing threads cannot confuse them
	// with other files.
	fdCounters   = 3
	fdIn         = 4
	fdOut        = 5
	fdDriver     = 6
	firstDevice  = 100
	devices      = 8
	limitOfFiles = 256
	nobodyLocks  = 64 * page // RLIMIT_MEMLOCK of nobody
)

// skipped is the errno of an operation that had nothing to do.
const skipped = unix.Errno(0xffff)

// An operation is an action that threads perform at random.
type operation struct {
	name   string
	weight int
	do     func(*thread) unix.Errno
}

// process is a worker. Its threads use all of it concurrently.
type process struct {
	settings
	tally   *tally
	memory  area                     // memory to pin
	driver  area                     // a driver's memory
	huge    area                     // huge pages
	views   area                     // mappings of the device
	rooms   uintptr                  // the threads' own memory
	files   [64]atomic.Int32         // descriptors of the files behind slots; 0: none
	handles [64]atomic.Pointer[held] // what the module has returned, at random places
	tids    [threads]atomic.Int32    // kernel threads; 0: not started yet
}

// held is an object that the module returned: a pin or an allocation.
type held struct {
	fd     int
	handle uint32
	offset uint64 // for mmap
	size   uint64 // bytes
	pin    bool
}

// thread is a thread of a worker, on its own kernel thread.
type thread struct {
	*rand.Rand
	*process
	room    uintptr // its own memory, always mapped: 16 pages
	failNth int     // the file that selects the failing allocation; -1: none
}

func runWorker(s settings) error {
	p := &process{settings: s}
	var err error
	if p.tally, err = newTally(os.NewFile(fdCounters, "counters")); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limitOfFiles, Max: limitOfFiles}); err != nil {
		return fmt.Errorf("RLIMIT_NOFILE: %w", err)
	}
	if s.nobody {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: nobodyLocks, Max: nobodyLocks}); err != nil {
			return fmt.Errorf("RLIMIT_MEMLOCK: %w", err)
		}
	}
	// With a handler, a signal interrupts what a thread waits for.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
	p.reserve()
	var all sync.WaitGroup
	deadline := time.Now().Add(s.duration)
	for i := range threads {
		all.Add(1)
		go func() {
			defer all.Done()
			p.thread(i, deadline)
		}()
	}
	all.Wait()
	return nil
}

func (p *process) thread(n int, deadline time.Time) {
	runtime.LockOSThread()
	debug.SetPanicOnFault(true)
	room := reserve(p.rooms+uintptr(n)*hugePage, 16*page, unix.PROT_READ|unix.PROT_WRITE)
	t := &thread{rand.New(rand.NewPCG(p.seed, uint64(n+1))), p, room, -1}
	if p.inject {
		t.injectable()
	}
	p.tids[n].Store(int32(unix.Gettid()))
	ops := operations()
	var sum int
	for _, o := range ops {
		sum += o.weight
	}
	if n == 0 {
		for i := range devices {
			t.openAs(i, unix.O_RDWR)
		}
	}
	for time.Now().Before(deadline) {
		pick, op := t.IntN(sum), 0
		for pick >= ops[op].weight {
			pick -= ops[op].weight
			op++
		}
		p.tally.add(op, ops[op].do(t))
	}
}

// wrong counts an undocumented result of the module, and prints the first 20.
func (t *thread) wrong(format string, a ...any) {
	if t.tally.wrong.Add(1) <= 20 {
		fmt.Printf("kfuzz: worker %d, seed %d: %s\n", t.worker, t.seed, fmt.Sprintf(format, a...))
	}
}

// one returns true with a probability of 1/n.
func (t *thread) one(n int) bool { return t.IntN(n) == 0 }

// operations lists all operations. The weights make pins frequent, because most other operations end some pins.
func operations() []operation {
	return []operation{
		{"open", 3, (*thread).open},
		{"close", 2, (*thread).close},
		{"dup", 2, (*thread).dup},
		{"info", 3, (*thread).info},
		{"region", 1, (*thread).region},
		{"pin", 40, (*thread).pinMemory},
		{"pin driver's", 8, (*thread).pinDriver},
		{"pin huge", 4, (*thread).pinHuge},
		{"pin view", 2, (*thread).pinView},
		{"query", 12, (*thread).query},
		{"put", 22, (*thread).put},
		{"alloc", 6, (*thread).alloc},
		{"event", 4, (*thread).event},
		{"halt", 2, (*thread).halt},
		{"resume", 40, (*thread).resume},
		{"fence", 1, (*thread).fence},
		{"reset", 1, (*thread).reset},
		{"raw", 6, (*thread).raw},
		{"view pin", 12, (*thread).viewPin},
		{"view alloc", 6, (*thread).viewAlloc},
		{"view BAR", 2, (*thread).viewBAR},
		{"unview", 10, (*thread).unview},
		{"move view", 4, (*thread).moveView},
		{"protect view", 2, (*thread).protectView},
		{"touch", 12, (*thread).touch},
		{"copy", 6, (*thread).copy},
		{"fill", 10, (*thread).fill},
		{"unmap", 3, (*thread).unmap},
		{"advise", 10, (*thread).advise},
		{"protect", 4, (*thread).protect},
		{"mremap", 4, (*thread).mremap},
		{"truncate", 2, (*thread).truncate},
		{"punch", 2, (*thread).punch},
		{"clear_refs", 1, (*thread).clearRefs},
		{"vm_readv", 2, (*thread).vmRead},
		{"fork", 1, (*thread).fork},
		{"exec", 1, (*thread).exec},
		{"send", 2, (*thread).send},
		{"receive", 2, (*thread).receive},
		{"poll", 2, (*thread).poll},
		{"kick", 1, (*thread).kick},
		{"affinity", 1, (*thread).affinity},
	}
}
