// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// transfers checks that, with any alignment, files and memory have the same content as with ordinary calls, and that no
// byte outside the range changes.
func transfers(t *testing.T, s *site) {
	d := s.open(t, func(set *Settings) { set.MaxDirectIO = max(64, s.leastPiece()) }) // so that transfers have several pieces
	h := s.handle(t, d, os.O_RDWR)
	const most = 400_000
	mem, base := s.memory(t, 1<<20)
	want(t, d.RegisterBuffer(base, len(mem), 0), Success)
	r, content := rand.New(rand.NewPCG(1, 2)), rand.NewChaCha8([32]byte{3})
	model := make([]byte, 0, 2<<20) // of the file
	at := func(limit int) int {     // often aligned
		n := r.IntN(limit)
		if r.IntN(2) == 0 || s.released && s.flags&unix.O_DIRECT != 0 {
			n &^= 4095
		}
		return n
	}
	for range 40 {
		size, off, in := at(most), at(1<<20), at(1<<19)
		before := bytes.Clone(mem)
		if r.IntN(2) == 0 {
			_, _ = content.Read(mem[in : in+size])
			n, err := h.Write(base, size, int64(off), int64(in))
			if n != size || err != nil {
				t.Fatalf("write of %d bytes at %d: %d, %v", size, off, n, err)
			}
			if size > 0 && off+size > len(model) {
				model = append(model, make([]byte, off+size-len(model))...)
			}
			copy(model[min(off, len(model)):], mem[in:in+size])
			continue
		}
		n, err := h.Read(base, size, int64(off), int64(in))
		if expect := max(0, min(size, len(model)-off)); n != expect || err != nil {
			t.Fatalf("read of %d bytes at %d of %d: %d, want %d, %v", size, off, len(model), n, expect, err)
		}
		copy(before[in:], model[min(off, len(model)):min(off+n, len(model))])
		copy(before[in+n:in+size], mem[in+n:]) // a disk reads whole sectors, even beyond the end of the file
		if !bytes.Equal(mem, before) {
			t.Fatalf("read of %d bytes at %d into %d: the memory is not what it should be", size, off, in)
		}
	}
	holds(t, h, 0, model)
	want(t, errors.Join(h.Sync(), h.Deregister(), d.DeregisterBuffer(base)), Success)
}

// batch checks many concurrent transfers of several files, in any order.
func batch(t *testing.T, s *site) {
	d := s.open(t, nil)
	mem, base := s.memory(t, 4<<20)
	pattern(mem)
	const files = 3
	piece := 10_000
	if s.released && s.flags&unix.O_DIRECT != 0 { // of pieces of other sizes it fails some
		piece = 8192
	}
	var list [files]*File
	for i := range list {
		list[i] = s.handle(t, d, os.O_RDWR)
	}
	var ops []Op
	for n := range 400 {
		at := int64(n * piece)
		ops = append(ops, Op{File: list[n%files], Write: true, Base: base, Offset: at, Size: piece, FileOffset: at / files / int64(piece) * int64(piece)})
	}
	before := bytes.Clone(mem)
	for i, e := range s.done(t, d, ops) {
		if e != (Event{Status: Complete, N: piece}) {
			t.Fatalf("transfer %d: %+v", i, e)
		}
	}
	if !bytes.Equal(mem, before) {
		t.Error("writing has changed the memory")
	}
	events := s.done(t, d, []Op{{File: list[0], Base: base, Size: 2 * piece, FileOffset: int64(133 * piece)}, {File: list[1], Base: base}})
	if events[0] != (Event{Status: Complete, N: piece}) || events[1].Status != Complete {
		t.Errorf("at the end of the file: %+v", events)
	}
	for i, h := range list {
		got, err := os.ReadFile(h.caller.Name())
		if err != nil {
			t.Fatal(err)
		}
		for k := 0; k*piece < len(got); k++ {
			if n := files*k + i; n > 1 && !bytes.Equal(got[k*piece:(k+1)*piece], mem[n*piece:(n+1)*piece]) {
				t.Fatalf("file %d has, instead of piece %d, what lies in memory at %d (-1: nowhere)", i, n, bytes.Index(before, got[k*piece:(k+1)*piece]))
			}
		}
	}
}

// done returns the events of a completed batch.
func (s *site) done(t *testing.T, d *Driver, ops []Op) []Event {
	t.Helper()
	b, err := d.Submit(ops)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b.Status()
}

// closeWhileTransfersRun checks that transfers end, successfully or with DriverClosing, and that Close waits for them.
func closeWhileTransfersRun(t *testing.T, s *site) {
	d := s.open(t, nil)
	h := s.handle(t, d, os.O_RDWR)
	_, base := s.memory(t, 1<<20)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 2000 {
				_, err := h.Write(base, 8192, int64(i*8192), 0)
				if err != nil {
					if !errors.Is(err, DriverNotInitialized) && !errors.Is(err, DriverClosing) && !errors.Is(err, HandleNotRegistered) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	time.Sleep(5 * time.Millisecond)
	want(t, d.Close(), Success)
	all.Wait()
}

// cancel checks that a transfer that has not started does not start.
func cancel(t *testing.T, s *site) {
	d := s.open(t, nil)
	h := s.handle(t, d, os.O_RDWR)
	_, base := s.memory(t, 1<<20)
	var ops []Op
	for i := range 5000 {
		ops = append(ops, Op{File: h, Write: true, Base: base, Size: 1 << 18, FileOffset: int64(i%64) << 18})
	}
	b, err := d.Submit(ops)
	if err != nil {
		t.Fatal(err)
	}
	b.Cancel()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := b.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	count := map[OpStatus]int{}
	for _, e := range b.Status() {
		count[e.Status]++
	}
	if count[Canceled] == 0 || count[Canceled]+count[Complete] != len(ops) {
		t.Errorf("%v", count)
	}
}

// TestAMountIsMeasuredOnce checks that the result for the first file of a file system applies to the following ones.
func TestAMountIsMeasuredOnce(t *testing.T) {
	s := &site{folder: t.TempDir(), memory: memory}
	d := s.open(t, nil)
	if err := d.Prepare(s.folder); err != nil {
		t.Fatal(err)
	}
	for _, m := range d.mounts.list {
		for range 2 {
			if h := s.handle(t, d, os.O_RDWR); h.direct.fd >= 0 != m.direct {
				t.Errorf("direct is %t on the mount, and the file has the descriptor %d", m.direct, h.direct.fd)
			}
			m.direct = !m.direct // it is not measured again
		}
	}
	s.roundTrip(t, d, 1<<20)
}

// TestAMountThatHangs checks that a mount that hangs during its measurement does not delay users of another mount.
func TestAMountThatHangs(t *testing.T) {
	s := &site{folder: t.TempDir(), memory: memory}
	d := s.open(t, nil)
	begun, answers := make(chan struct{}), make(chan struct{})
	defer close(answers)
	d.trial = func(folder string, flags int, memory []byte) (time.Duration, error) {
		if folder != "hangs" {
			return trial(folder, flags, memory)
		}
		close(begun)
		<-answers
		return 0, unix.EIO
	}
	go d.measured("hangs", 1)
	<-begun
	prepared := make(chan error, 1)
	go func() { prepared <- d.Prepare(s.folder) }()
	select {
	case err := <-prepared:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it is held up")
	}
}

// noDescriptor checks that a file that must be opened again cannot be registered when no descriptor is left.
func noDescriptor(t *testing.T, s *site) error {
	direct := *s
	direct.flags = unix.O_DIRECT
	if !direct.hasDirect(t) {
		return NewFDFailed
	}
	d, f := direct.open(t, nil), direct.file(t, os.O_RDWR)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	next, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(next)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next), Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = d.RegisterFile(f)
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); e != nil {
		t.Fatal(e)
	}
	return err
}
