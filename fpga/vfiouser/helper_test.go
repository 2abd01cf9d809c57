// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/fpga"
	vt "github.com/tegracast/tegracast/fpga/vfiouser/vfiousertest"
)

// registers are words that store what was written.
type registers struct {
	mu    sync.Mutex
	words map[uint32]uint32
}

func (r *registers) Read32(off uint32) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.words[off]
}

func (r *registers) Write32(off, v uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.words[off] = v
}

var _ fpga.Registers = (*registers)(nil)

// device is a served function for tests, with a client.
type device struct {
	*Server
	memory *Memory
	regs   *registers
	c      *vt.Client

	mu      sync.Mutex
	line    bool
	resets  int
	missing bool
}

func (d *device) set(line bool) {
	d.mu.Lock()
	d.line = line
	d.mu.Unlock()
	d.Raise(0)
}

// function returns a function with all features.
func (d *device) function() Function {
	return Function{
		Vendor: 0x10ee, Device: 0x9038, SubVendor: 0x10ee, SubDevice: 7, Class: 0x058000, Revision: 3,
		BARs: []BAR{
			{Index: 0, Size: 64 << 10, Registers: d.regs},
			{Index: 2, Size: 8 << 30, Bits64: true, Prefetchable: true, Registers: d.regs, Backed: 0x10000},
		},
		MSIX: MSIX{Vectors: 70, BAR: 0, Table: 0x8000, PBA: 0x9000}, MSI: 8,
		Line: func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.line },
		Reset: func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.resets++
		},
		Present: func() bool { d.mu.Lock(); defer d.mu.Unlock(); return !d.missing },
	}
}

// serve serves a function, modified by change, until the test ends.
func serve(t testing.TB, change ...func(*Function)) *device {
	t.Helper()
	d := &device{memory: &Memory{}, regs: &registers{words: map[uint32]uint32{}}}
	f := d.function()
	for _, c := range change {
		c(&f)
	}
	var err error
	if d.Server, err = New(f, d.memory); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(context.Background()) }()
	t.Cleanup(func() {
		d.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return d
}

// connect dials and negotiates the version.
func (d *device) connect(t testing.TB) *vt.Client {
	t.Helper()
	d.c = vt.Dial(t, d.Path())
	if r := d.c.Greet(); r.Flags != 1 {
		t.Fatalf("the version: %+v", r)
	}
	return d.c
}

// ready returns a connected client that has enabled bus mastering.
func (d *device) ready(t testing.TB) *vt.Client {
	t.Helper()
	c := d.connect(t)
	if r := c.Write(7, 4, []byte{6, 0}); r.Flags != 1 {
		t.Fatalf("the command register: %+v", r)
	}
	return c
}

// fails checks that the reply is an error with that errno.
func fails(t testing.TB, what string, r vt.Reply, errno unix.Errno) {
	t.Helper()
	if r.Flags != 1|1<<5 || r.Errno != uint32(errno) {
		t.Errorf("%s: %+v, want errno %d (%v)", what, r, uint32(errno), errno)
	}
}

// works checks that the reply has that body.
func works(t testing.TB, what string, r vt.Reply, body []byte) {
	t.Helper()
	if r.Flags != 1 || !slices.Equal(r.Body, body) {
		t.Errorf("%s: %+v, want %x", what, r, body)
	}
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout: %s", what)
		}
	}
}

// open lists this process's descriptors, without those of the runtime's poller.
func open(t testing.TB) (list []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.Contains(to, "eventpoll") && to != "anon_inode:[eventfd]" {
			list = append(list, to)
		}
	}
	slices.Sort(list)
	return list
}

// eventfds returns the number of eventfds.
func eventfds(t testing.TB) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); to == "anon_inode:[eventfd]" {
			n++
		}
	}
	return n
}

// mappings returns how often a memfd of this name is mapped.
func mappings(t testing.TB, name string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "/memfd:"+name+" ")
}

// memfd creates a file of that size, which is closed at the test's end.
func memfd(t testing.TB, name string, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return fd
}

// sizeName returns a benchmark's name.
func sizeName(n int) string { return fmt.Sprintf("%dB", n) }

func word(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
