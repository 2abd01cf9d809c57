// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bufferLines covers cuFileBufRegister and cuFileBufDeregister (§4.3).
var bufferLines = []line{
	{"002.1.13.0", "memory is registered", func(t *testing.T, s *site) { s.registered(t, nil) }},
	{"002.1.13.5022", "no memory, no bytes, a flag, or beyond the end of addresses", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		_, base := s.memory(t, 4096)
		want(t, d.RegisterBuffer(0, 4096, 0), InvalidValue)
		want(t, d.RegisterBuffer(base, 0, 0), InvalidValue)
		want(t, d.RegisterBuffer(base, -1, 0), InvalidValue)
		want(t, d.RegisterBuffer(base, 4096, 1), InvalidValue)
		want(t, d.RegisterBuffer(^uintptr(0)-4095, 8192, 0), InvalidValue)
	}},
	{"002.1.13.5023", "memory is registered once, also in part", func(t *testing.T, s *site) {
		d, base := s.registered(t, nil)
		want(t, d.RegisterBuffer(base, 1<<20, 0), MemoryAlreadyRegistered)
		want(t, d.RegisterBuffer(base+4096, 4096, 0), MemoryAlreadyRegistered)
	}},
	{"002.1.13.5016", "more than may be pinned", func(t *testing.T, s *site) {
		_, base := s.memory(t, 128<<10)
		want(t, s.open(t, func(set *Settings) { set.MaxPinned = 64 }).RegisterBuffer(base, 128<<10, 0), InvalidMappingSize)
	}},
	{"002.1.14.0", "memory is deregistered", func(t *testing.T, s *site) {
		d, base := s.registered(t, nil)
		want(t, d.DeregisterBuffer(base), Success)
		want(t, d.RegisterBuffer(base, 4096, 0), Success)
	}},
	{"002.1.14.5024", "what is not registered, or no longer", func(t *testing.T, s *site) {
		d, base := s.registered(t, nil)
		want(t, d.DeregisterBuffer(base+4096), MemoryNotRegistered)
		want(t, d.DeregisterBuffer(base), Success)
		want(t, d.DeregisterBuffer(base), MemoryNotRegistered)
	}},
}

// registered returns a driver with a MiB of registered memory.
func (s *site) registered(t *testing.T, change func(*Settings)) (*Driver, uintptr) {
	t.Helper()
	d := s.open(t, change)
	_, base := s.memory(t, 1<<20)
	want(t, d.RegisterBuffer(base, 1<<20, 0), Success)
	return d, base
}

// batchLines covers cuFileBatchIOSubmit to cuFileBatchIODestroy (§4.5), and CUFILE_ERRSTR (§3.1.1).
var batchLines = []line{
	{"002.1.17.0", "a batch is done", func(t *testing.T, s *site) { s.batchOf(t, os.O_RDWR) }},
	{"002.1.17.5022", "no transfer, and a transfer that is ill-formed", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		h := s.handle(t, d, os.O_RDWR)
		_, base := s.memory(t, 4096)
		_, err := d.Submit(nil)
		want(t, err, InvalidValue)
		_, err = d.Submit([]Op{{File: h, Base: base, Size: 4096, Write: true}, {File: h, Base: base, Size: -1}})
		want(t, err, InvalidValue)
		holds(t, h, 0, nil) // none was started
		_, err = d.Submit([]Op{{}})
		want(t, err, HandleNotRegistered)
	}},
	{"002.1.18.0", "a batch tells how far it is", func(t *testing.T, s *site) {
		_, _, events := s.batchOf(t, os.O_RDWR)
		if want := (Event{Status: Complete, N: 4096}); events[0] != want {
			t.Errorf("%+v, want %+v", events[0], want)
		}
	}},
	{"002.1.18.fields", "status, error and bytes are of each transfer", func(t *testing.T, s *site) {
		_, _, events := s.batchOf(t, os.O_WRONLY)
		e := events[1]
		refused := errors.Is(e.Err, unix.EBADF) || s.released && errors.Is(e.Err, InvalidFileOpenFlag)
		if e.Status != Failed || !refused || events[0].Err != nil || events[0].N != 4096 {
			t.Errorf("%+v", events)
		}
	}},
	{"002.1.19.0", "a batch that has ended can be canceled", func(t *testing.T, s *site) {
		_, b, before := s.batchOf(t, os.O_RDWR)
		b.Cancel()
		if !slices.Equal(b.Status(), before) {
			t.Errorf("%+v, and %+v before", b.Status(), before)
		}
	}},
	{"002.1.19.canceled", "what has not begun does not begin", cancel},
	{"002.1.20.0", "a batch that is canceled and has ended holds nothing", func(t *testing.T, s *site) {
		h, b, _ := s.batchOf(t, os.O_RDWR)
		b.Cancel()
		want(t, h.Deregister(), Success)
		want(t, h.driver.Close(), Success)
	}},
	{"002.1.21.texts", "each status has a text and its number", func(t *testing.T, _ *site) {
		seen := map[string]bool{}
		for s := Status(5001); s <= 5034; s++ {
			text := s.Error()
			if documented := s != 5021 && s != 5032; strings.Contains(text, fmt.Sprintf("(%d)", s)) != documented || seen[text] {
				t.Errorf("%d: %s", s, text)
			}
			seen[text] = true
		}
	}},
	{"002.1.21.cuda", "the error of CUDA is found", func(t *testing.T, _ *site) {
		inner := errors.New("CUDA_ERROR_INVALID_VALUE (1)")
		err := error(&Error{Call: "cuFileDriverOpen", Status: CUDADriverError, Why: inner})
		if want(t, err, CUDADriverError); !errors.Is(err, inner) || !strings.Contains(err.Error(), inner.Error()) {
			t.Error(err)
		}
	}},
}

// batchOf returns a batch of a write and a read of 4 KiB that has ended.
func (s *site) batchOf(t *testing.T, flags int) (*File, *Batch, []Event) {
	t.Helper()
	d := s.open(t, nil)
	h := s.handle(t, d, flags)
	_, base := s.memory(t, 8192)
	b, err := d.Submit([]Op{{File: h, Write: true, Base: base, Size: 4096}, {File: h, Base: base, Offset: 4096, Size: 4096}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h, b, b.Status()
}

// ruleLines covers the types (§3.1), the rules (§2, §4) and compatibility mode (§2.3).
var ruleLines = []line{
	{"002.2.1", "CUfileError_t", func(t *testing.T, s *site) {
		_, err := s.open(t, nil).RegisterFile(nil)
		var e *Error
		if !errors.As(err, &e) || e.Status != InvalidValue || e.Call != "cuFileHandleRegister" {
			t.Errorf("%v", err)
		}
	}},
	{"002.2.2", "CUfileDescr_t is an open file", func(t *testing.T, s *site) { s.handle(t, s.open(t, nil), os.O_RDWR) }},
	{"002.2.4", "CUfileHandle_t is of its driver", func(t *testing.T, s *site) {
		h := s.handle(t, s.open(t, nil), os.O_RDWR)
		_, base := s.memory(t, 4096)
		_, err := s.open(t, nil).Submit([]Op{{File: h, Base: base, Size: 1}})
		want(t, err, HandleNotRegistered)
	}},
	{"002.2.8", "CUfileDriverControlFlags", func(t *testing.T, s *site) {
		p, err := s.open(t, func(set *Settings) { set.Poll = true }).Properties()
		want(t, err, Success)
		s.tells(t, p, p.Poll && p.AllowCompat)
	}},
	{"002.2.10", "CUfileDrvProps_t has the document's defaults", func(t *testing.T, s *site) {
		p, err := s.open(t, nil).Properties()
		want(t, err, Success)
		if p.MaxDirectIO != 16384 || p.MaxDeviceCache != 131072 || p.MaxPinned != 33554432 || p.Poll || p.PollThreshold != 4 {
			t.Errorf("%+v", p)
		}
	}},
	{"002.2.11", "CUfileBatchOpcode: a batch reads and writes", func(t *testing.T, s *site) {
		if h, _, _ := s.batchOf(t, os.O_RDWR); h != nil {
			holds(t, h, 0, make([]byte, 4096))
		}
	}},
	{"002.2.12", "the batch statuses have the document's values", func(t *testing.T, _ *site) {
		list := []OpStatus{Waiting, Pending, Invalid, Canceled, Complete, TimedOut, Failed}
		for i, word := range []string{"waiting", "pending", "invalid", "canceled", "complete", "timed out", "failed"} {
			if int(list[i]) != i || list[i].String() != word {
				t.Errorf("%d is %v, want %s", i, list[i], word)
			}
		}
	}},
	{"002.2.13", "CUfileIOParams_t is Op and Event", func(t *testing.T, s *site) {
		_, _, events := s.batchOf(t, os.O_RDWR)
		if done := (Event{Status: Complete, N: 4096}); events[0] != done {
			t.Errorf("%+v", events)
		}
	}},

	{"002.4.1", "calls may be made by any goroutine", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { s.roundTrip(t, d, 50_000) })
		}
		all.Wait()
	}},
	{"002.4.3", "registering twice and closing what is not open are errors", func(t *testing.T, s *site) {
		d, base := s.registered(t, nil)
		h := s.handle(t, d, os.O_RDWR)
		_, err := d.RegisterFile(h.caller)
		want(t, err, HandleAlreadyRegistered)
		want(t, d.RegisterBuffer(base, 1<<20, 0), MemoryAlreadyRegistered)
		want(t, h.Deregister(), Success)
		want(t, h.Deregister(), HandleNotRegistered)
		want(t, d.DeregisterBuffer(base), Success)
		want(t, d.DeregisterBuffer(base), MemoryNotRegistered)
		want(t, d.Close(), Success)
		want(t, d.Close(), DriverNotInitialized)
	}},
	{"002.4.4", "memory need not be registered, a file must", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		s.roundTrip(t, d, 4096)
		_, base := s.memory(t, 4096)
		h := s.handle(t, d, os.O_RDWR)
		want(t, h.Deregister(), Success)
		_, err := h.Write(base, 4096, 0, 0)
		want(t, err, HandleNotRegistered)
	}},
	{"002.4.5", "closing the driver deregisters", func(t *testing.T, s *site) {
		d, base := s.registered(t, nil)
		h := s.handle(t, d, os.O_RDWR)
		want(t, d.Close(), Success)
		d = s.open(t, nil)
		want(t, d.RegisterBuffer(base, 1<<20, 0), Success)
		_, err := d.RegisterFile(h.caller)
		want(t, err, Success)
	}},
	{"002.4.6", "the document's order, with and without its optional steps", func(t *testing.T, s *site) {
		for _, optional := range []bool{true, false} {
			d := s.open(t, nil)
			b, base := s.memory(t, 64<<10)
			pattern(b)
			if optional {
				want(t, d.RegisterBuffer(base, len(b), 0), Success)
			}
			h := s.handle(t, d, os.O_RDWR)
			if n, err := h.Write(base, len(b), 0, 0); n != len(b) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			holds(t, h, 0, b)
			if optional {
				want(t, errors.Join(d.DeregisterBuffer(base), h.Deregister()), Success)
			}
			want(t, d.Close(), Success)
		}
	}},
	{"002.4.7", "offsets in memory and in the file are apart", func(t *testing.T, s *site) { s.withOffset(t, false) }},
	{"002.4.8", "memory that is not registered is read and written", func(t *testing.T, s *site) { s.roundTrip(t, s.open(t, nil), 1<<20) }},
	{"002.4.10", "a batch mixes files, offsets and directions", batch},
	{"002.4.12", "short reads at the end of a file", func(t *testing.T, s *site) {
		h := s.handle(t, s.open(t, nil), os.O_RDWR)
		b, base := s.memory(t, 3*4096)
		pattern(b)
		if n, err := h.Write(base, 5000, 0, 0); n != 5000 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		for at, expect := range map[int64]int{0: 5000, 1: 4999, 4096: 904, 4999: 1, 5000: 0, 8192: 0} {
			if n, err := h.Read(base, len(b), at, 0); n != expect || err != nil {
				t.Errorf("at %d: %d, want %d: %v", at, n, expect, err)
			}
		}
	}},
	{"002.4.13", "durable by Sync", func(t *testing.T, s *site) { want(t, s.handle(t, s.open(t, nil), os.O_RDWR).Sync(), Success) }},
	{"002.4.15", "memory is allocated before it is registered and freed afterwards", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		for range 3 {
			_, base := s.memory(t, 1<<20)
			want(t, d.RegisterBuffer(base, 1<<20, 0), Success)
			want(t, d.DeregisterBuffer(base), Success)
		}
	}},

	{"002.5.3", "without nvidia-fs all transfers work", func(t *testing.T, s *site) {
		if _, err := os.Stat("/dev/nvidia-fs0"); err == nil {
			t.Skip("NEEDS a machine without nvidia-fs")
		}
		s.roundTrip(t, s.open(t, nil), 1<<20)
	}},
	{"002.5.4", "every file system works", func(t *testing.T, s *site) { s.roundTrip(t, s.open(t, nil), 12345) }},
	{"002.5.8", "a direct transfer that is refused is made through the page cache", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		h := s.handle(t, d, os.O_RDWR)
		b, base := s.memory(t, 3*4096)
		pattern(b)
		if n, err := h.Write(base+1, 4096, 1, 0); n != 4096 || err != nil { // the address does not allow a direct transfer
			t.Errorf("%d, %v", n, err)
		}
		holds(t, h, 1, b[1:4097])
	}},
	{"002.5.10", "what pread and pwrite would do", func(t *testing.T, s *site) { s.roundTrip(t, s.open(t, nil), 77_777) }},
	{"002.5.14", "memory of the host is read and written where it is", func(t *testing.T, s *site) {
		b, base := s.memory(t, 1<<20)
		if uintptr(unsafe.Pointer(&b[0])) != base {
			t.Errorf("memory at %p has the address %#x", &b[0], base)
		}
		s.roundTrip(t, s.open(t, nil), 1<<20)
	}},
}
