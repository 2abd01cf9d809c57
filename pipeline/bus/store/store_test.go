// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// messages returns count messages of one subject, numbered from first.
func messages(s *Store, first, count, size int) (list []Message) {
	for i := range count {
		n := Number{s.ID, s.Epoch, uint64(first + i)}
		list = append(list, Message{"tegracast.a.events", n, bytes.Repeat([]byte{byte(first + i)}, size)})
	}
	return list
}

func opened(t *testing.T, folder string, limit int64) *Store {
	t.Helper()
	s, err := Open(Config{Folder: folder, Limit: limit, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func appended(t *testing.T, s *Store, list []Message) {
	t.Helper()
	if n, err := s.Append(list); err != nil || n != len(list) {
		t.Fatal(n, err)
	}
}

// sequences returns the numbers of messages.
func sequences(list []Message) (all []uint64) {
	for _, m := range list {
		all = append(all, m.Sequence)
	}
	return all
}

func expect(t *testing.T, list []Message, first, last uint64) {
	t.Helper()
	got := sequences(list)
	if uint64(len(got)) != last-first+1 {
		t.Fatalf("%d messages, want %d to %d", len(got), first, last)
	}
	for i, n := range got {
		if n != first+uint64(i) || list[i].Data[0] != byte(n) {
			t.Fatalf("message %d has number %d, want %d", i, n, first+uint64(i))
		}
	}
}

// TestOrder checks that messages come back in the order in which they were appended, that Rewind returns those not done
// again, and that finished files are deleted.
func TestOrder(t *testing.T) {
	folder := t.TempDir()
	s := opened(t, folder, 1<<20)
	appended(t, s, messages(s, 1, 100, 5000))
	expect(t, s.Next(10), 1, 10)
	s.Done(4)
	expect(t, s.Next(5), 11, 15)
	s.Rewind()
	expect(t, s.Next(40), 5, 44)
	s.Done(40)
	appended(t, s, messages(s, 101, 3, 10))
	expect(t, s.Next(1000), 45, 103)
	if list, _ := s.segmentsIn(); len(list) >= 4 || s.Left() != 59 || s.Unread() != 0 {
		t.Errorf("%d files, %d messages", len(list), s.Left())
	}
	s.Done(59)
	if list, _ := s.segmentsIn(); len(list) != 0 || s.Size() != 0 || s.Left() != 0 || len(s.Next(1)) != 0 {
		t.Errorf("%d files, %d bytes, %d messages", len(list), s.Size(), s.Left())
	}
	appended(t, s, messages(s, 104, 1, 10))
	expect(t, s.Next(2), 104, 104)
}

// TestRestart checks that the numbers and the position of the first message survive a clean end; without one, a new
// epoch starts and everything is returned again.
func TestRestart(t *testing.T) {
	folder := t.TempDir()
	s := opened(t, folder, 1<<20)
	id := s.ID
	appended(t, s, messages(s, 1, 9, 100))
	s.Next(5)
	s.Done(3)
	if _, err := Open(s.config); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	if err := s.Close(map[string]uint64{"x": 9}); err != nil {
		t.Fatal(err)
	}
	s = opened(t, folder, 1<<20)
	if s.ID != id || s.Epoch != 1 || !maps.Equal(s.Numbers, map[string]uint64{"x": 9}) || s.Left() != 6 {
		t.Errorf("%x, epoch %d, %v, %d messages", s.ID, s.Epoch, s.Numbers, s.Left())
	}
	expect(t, s.Next(100), 4, 9)
	s.Done(2)
	_ = s.lock.Close()
	s = opened(t, folder, 1<<20)
	if s.ID != id || s.Epoch != 2 || len(s.Numbers) != 0 {
		t.Errorf("%x, epoch %d, %v", s.ID, s.Epoch, s.Numbers)
	}
	expect(t, s.Next(100), 1, 9) // the position had not been saved
	_ = s.lock.Close()
	if err := os.WriteFile(filepath.Join(folder, stateFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s = opened(t, folder, 1<<20); s.ID == id || s.Epoch != 1 {
		t.Errorf("%x, epoch %d", s.ID, s.Epoch)
	}
	expect(t, s.Next(100), 1, 9)
}

// TestPowerCut cuts off the last file, or fills it up with zeros, at random offsets: everything before must be intact.
func TestPowerCut(t *testing.T) {
	folder := t.TempDir()
	s := opened(t, folder, 1<<20)
	appended(t, s, messages(s, 1, 8, 300))
	path := s.target.path
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	one := int(size(&Message{Subject: "tegracast.a.events", Data: make([]byte, 300)}))
	_ = s.lock.Close()
	for range 40 {
		at := rand.IntN(len(whole) + 1)
		b := bytes.Clone(whole[:at])
		if rand.IntN(2) == 0 {
			b = append(b, make([]byte, len(whole)-at)...) // the size was written, the data were not
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := opened(t, folder, 1<<20)
		kept := max(0, at-len(magic)) / one
		if list := s.Next(100); kept > 0 {
			expect(t, list, 1, uint64(kept))
		} else if len(list) > 0 {
			t.Fatalf("cut at %d: %v", at, sequences(list))
		}
		appended(t, s, messages(s, 9, 1, 300))
		expect(t, s.Next(1), 9, 9)
		if err := s.Close(nil); err != nil {
			t.Fatal(err)
		}
		files, _ := filepath.Glob(filepath.Join(folder, "*"+extension))
		for _, f := range files {
			os.Remove(f)
		}
	}
}

// TestFull checks that the oldest messages make room and are counted exactly, including those in flight once it is
// known that they have not arrived.
func TestFull(t *testing.T) {
	const limit, count = 160 << 10, 1000
	s := opened(t, t.TempDir(), limit)
	appended(t, s, messages(s, 1, 20, 1000))
	expect(t, s.Next(15), 1, 15)
	s.Done(5)
	for n := 21; n <= count; n += 7 {
		appended(t, s, messages(s, n, min(7, count-n+1), 1000))
		if s.Size() > limit {
			t.Fatalf("%d bytes", s.Size())
		}
	}
	s.Rewind()
	list := s.Next(count)
	if lost := count - 5 - len(list); uint64(lost) != s.Dropped || len(list) < 100 {
		t.Errorf("%d of %d are there, %d are counted", len(list), count, s.Dropped)
	}
	expect(t, list, count-uint64(len(list))+1, count)
	if _, err := s.Append(messages(s, 1, 1, limit/parts)); !errors.Is(err, errLimits) {
		t.Error(err)
	}
}

// TestDiskFull checks that the oldest messages also make room on a full disk.
func TestDiskFull(t *testing.T) {
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=96k"); err != nil {
		t.Skipf("NEEDS root, to mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
	s := opened(t, folder, 128<<10)
	const count = 400
	for n := 1; n <= count; n++ {
		appended(t, s, messages(s, n, 1, 1000))
	}
	list := s.Next(count)
	expect(t, list, count-uint64(len(list))+1, count)
	if len(list) < 20 || uint64(count-len(list)) != s.Dropped {
		t.Errorf("%d are there, %d are counted", len(list), s.Dropped)
	}
}

// TestDamage checks that a file damaged while the program runs costs only its own messages, which are counted.
func TestDamage(t *testing.T) {
	s := opened(t, t.TempDir(), 160<<10)
	appended(t, s, messages(s, 1, 19, 1000))
	appended(t, s, messages(s, 20, 19, 1000))
	if len(s.segments) < 2 {
		t.Fatal("one file")
	}
	g := s.segments[0]
	f, err := os.OpenFile(g.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), g.size/2); err != nil {
		t.Fatal(err)
	}
	f.Close()
	list := s.Next(100)
	if s.Dropped == 0 || uint64(38-len(list)) != s.Dropped || list[len(list)-1].Sequence != 38 {
		t.Errorf("%v, %d are counted", sequences(list), s.Dropped)
	}
}

// TestWhatIsNoFile is passed over: a FIFO would be waited for.
func TestWhatIsNoFile(t *testing.T) {
	folder := t.TempDir()
	if err := unix.Mkfifo((&Store{config: Config{Folder: folder}}).pathOf(7), 0o600); err != nil {
		t.Fatal(err)
	}
	open := make(chan *Store, 1)
	go func() { open <- opened(t, folder, 160<<10) }()
	select {
	case s := <-open:
		appended(t, s, messages(s, 1, 3, 100))
		expect(t, s.Next(10), 1, 3)
	case <-time.After(time.Minute):
		t.Fatal("the store waits")
	}
}

// TestRandom compares a store with a list, over many steps.
func TestRandom(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		folder := t.TempDir()
		s := opened(t, folder, 1<<20)
		next, done, out := 1, 0, 0
		for step := range 300 {
			switch r.IntN(5) {
			case 0, 1:
				n := r.IntN(20)
				appended(t, s, messages(s, next, n, 1+r.IntN(500)))
				next += n
			case 2:
				list := s.Next(r.IntN(30))
				if len(list) > 0 {
					expect(t, list, uint64(done+out+1), uint64(done+out+len(list)))
				}
				out += len(list)
			case 3:
				n := r.IntN(out + 1)
				s.Done(n)
				done, out = done+n, out-n
			case 4:
				if r.IntN(10) == 0 {
					if err := s.Close(nil); err != nil {
						t.Fatal(err)
					}
					s = opened(t, folder, 1<<20)
				} else {
					s.Rewind()
				}
				out = 0
			}
			if s.Left() != next-1-done || s.Unread() != next-1-done-out || s.Dropped != 0 {
				t.Fatal(fmt.Sprint("seed ", seed, " step ", step, ": ", s.Left(), " ", s.Unread(), " ", s.Dropped, ", want ", next-1-done, " ", next-1-done-out))
			}
		}
		if err := s.Close(nil); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzScan checks that no file content harms the reader, and that everything counted can be read.
func FuzzScan(f *testing.F) {
	good := appendRecord([]byte(magic), &Message{"tegracast.a.health", Number{1, 2, 3}, []byte("{}")})
	f.Add(good)
	f.Add(appendRecord(good, &Message{"", Number{}, nil}))
	f.Add(good[:len(good)-1])
	f.Add([]byte(magic + "\xff\xff\xff\x7f\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		end, records, err := scan(bytes.NewReader(b), 0)
		if end > int64(len(b)) || err == nil && end != int64(len(b)) {
			t.Fatal(end, len(b), err)
		}
		rest := b[min(len(magic), int(end)):end]
		for range records {
			m, n, err := parse(rest)
			if err != nil {
				t.Fatal(err)
			}
			if again := appendRecord(nil, &m); !bytes.Equal(again, rest[:n]) {
				t.Fatalf("%q and %q", again, rest[:n])
			}
			rest = rest[n:]
		}
		if len(rest) > 0 {
			t.Fatalf("%d bytes are left", len(rest))
		}
	})
}
