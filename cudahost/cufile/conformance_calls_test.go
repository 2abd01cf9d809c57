// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// closed returns a driver that has been closed.
func (s *site) closed(t *testing.T) *Driver {
	d := s.open(t, nil)
	want(t, d.Close(), Success)
	return d
}

// driverLines covers cuFileDriverOpen to cuFileDriverSetMaxPinnedMemSize (§4.1).
var driverLines = []line{
	{"002.1.1.0", "a driver opens", func(t *testing.T, s *site) { s.open(t, nil) }},
	{"002.1.1.again", "a second driver opens", func(t *testing.T, s *site) {
		a, b := s.open(t, nil), s.open(t, nil)
		want(t, a.Close(), Success)
		_, err := b.Properties()
		want(t, err, Success)
	}},
	{"002.1.1.5001", "no driver without nvidia-fs where compatibility mode is not allowed", func(t *testing.T, s *site) {
		c := s.config
		c.Settings = DefaultSettings()
		c.Settings.AllowCompat = false
		_, err := Open(c)
		want(t, err, DriverNotInitialized)
		if err != nil && !strings.Contains(err.Error(), "allow_compat_mode") {
			t.Errorf("%v says not what to do", err)
		}
	}},
	{"002.1.1.json", "opening reads cufile.json", func(t *testing.T, s *site) {
		path := filepath.Join(t.TempDir(), "cufile.json")
		if err := os.WriteFile(path, []byte(`{"properties": {"max_direct_io_size_kb": 8192}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(PathVar, path)
		d, err := Open(s.config)
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.Properties()
		if want(t, err, Success); p.MaxDirectIO != 8192 {
			t.Errorf("%+v", p)
		}
		want(t, d.Close(), Success)
	}},
	{"002.1.2.0", "a driver closes", func(t *testing.T, s *site) { s.closed(t) }},
	{"002.1.2.5001", "a driver that is closed does not close again", func(t *testing.T, s *site) { want(t, s.closed(t).Close(), DriverNotInitialized) }},
	{"002.1.2.buffers", "closing deregisters buffers", func(t *testing.T, s *site) {
		_, base := s.memory(t, 8192)
		d := s.open(t, nil)
		want(t, d.RegisterBuffer(base, 8192, 0), Success)
		want(t, d.Close(), Success)
		want(t, s.open(t, nil).RegisterBuffer(base, 8192, 0), Success)
	}},
	{"002.1.2.inflight", "transfers under way end when the driver is closed", closeWhileTransfersRun},
	{"002.1.2.reopen", "after closing a driver opens again", func(t *testing.T, s *site) {
		s.closed(t)
		s.handle(t, s.open(t, nil), os.O_RDWR)
	}},
	{"002.1.3.0", "a driver has properties", func(t *testing.T, s *site) {
		p, err := s.open(t, func(set *Settings) { set.MaxDirectIO, set.MaxDeviceCache, set.MaxPinned = 2048, 4096, 8192 }).Properties()
		want(t, err, Success)
		s.tells(t, p, p.MaxDirectIO == 2048 && p.MaxDeviceCache == 4096 && p.MaxPinned == 8192)
	}},
	{"002.1.3.5001", "a closed driver has no properties", func(t *testing.T, s *site) {
		_, err := s.closed(t).Properties()
		want(t, err, DriverNotInitialized)
	}},
	{"002.1.5.0", "poll mode is set", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		want(t, d.SetPollMode(true, 8), Success)
		p, err := d.Properties()
		want(t, err, Success)
		s.tells(t, p, p.Poll && p.PollThreshold == 8)
	}},
	{"002.1.5.5001", "not of a closed driver", func(t *testing.T, s *site) { want(t, s.closed(t).SetPollMode(true, 8), DriverNotInitialized) }},
	{"002.1.5.5003", "a threshold is of 4 KiB", func(t *testing.T, s *site) { want(t, s.open(t, nil).SetPollMode(true, 3), DriverUnsupportedLimit) }},
	{"002.1.5.threshold", "transfers that are polled for are right", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		want(t, d.SetPollMode(true, 4), Success)
		s.roundTrip(t, d, 4096)
		s.roundTrip(t, d, 8192)
	}},
	{"002.1.5.override", "the call overrides cufile.json", func(t *testing.T, s *site) {
		d := s.open(t, func(set *Settings) { set.Poll, set.PollMax = true, 64 })
		want(t, d.SetPollMode(false, 4), Success)
		if p, err := d.Properties(); err != nil || p.Poll || p.PollThreshold != 4 {
			t.Errorf("%+v, %v", p, err)
		}
	}},
	{"002.1.6.0", "the largest piece is set", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		want(t, d.SetMaxDirectIOSize(1024), Success)
		p, err := d.Properties()
		want(t, err, Success)
		s.tells(t, p, p.MaxDirectIO == 1024)
	}},
	{"002.1.6.5001", "not of a closed driver", func(t *testing.T, s *site) { want(t, s.closed(t).SetMaxDirectIOSize(1024), DriverNotInitialized) }},
	{"002.1.6.5003", "a piece is of 4 KiB, and has some", func(t *testing.T, s *site) {
		for _, kb := range []uint64{0, 3, 1023} {
			want(t, s.open(t, nil).SetMaxDirectIOSize(kb), DriverUnsupportedLimit)
		}
	}},
	{"002.1.6.chunk", "a transfer in many pieces is right", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		piece := s.leastPiece()
		want(t, d.SetMaxDirectIOSize(piece), Success)
		s.roundTrip(t, d, int(piece)<<10*49-700)
	}},
	{"002.1.7.0", "the cache's size is set", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		want(t, d.SetMaxCacheSize(8192), Success)
		p, err := d.Properties()
		want(t, err, Success)
		s.tells(t, p, p.MaxDeviceCache == 8192)
	}},
	{"002.1.7.5001", "not of a closed driver", func(t *testing.T, s *site) { want(t, s.closed(t).SetMaxCacheSize(8192), DriverNotInitialized) }},
	{"002.1.7.5003", "the cache is of 4 KiB", func(t *testing.T, s *site) { want(t, s.open(t, nil).SetMaxCacheSize(5), DriverUnsupportedLimit) }},
	{"002.1.8.0", "the limit of what is pinned is set", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		want(t, d.SetMaxPinnedMemSize(65536), Success)
		p, err := d.Properties()
		want(t, err, Success)
		s.tells(t, p, p.MaxPinned == 65536)
	}},
	{"002.1.8.5001", "not of a closed driver", func(t *testing.T, s *site) { want(t, s.closed(t).SetMaxPinnedMemSize(65536), DriverNotInitialized) }},
	{"002.1.8.5003", "the limit is of 4 KiB", func(t *testing.T, s *site) { want(t, s.open(t, nil).SetMaxPinnedMemSize(5), DriverUnsupportedLimit) }},
	{"002.1.8.limit", "the limit limits registering", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		want(t, d.SetMaxPinnedMemSize(1024), Success)
		_, base := s.memory(t, 2<<20)
		want(t, d.RegisterBuffer(base, 1<<20, 0), Success)
		want(t, d.RegisterBuffer(base+1<<20, 4096, 0), InvalidMappingSize)
	}},
	{"002.1.8.unlimited", "the largest number is no limit", func(t *testing.T, s *site) {
		d := s.open(t, func(set *Settings) { set.MaxPinned = 64 })
		want(t, d.SetMaxPinnedMemSize(^uint64(0)), Success)
		_, base := s.memory(t, 1<<20)
		want(t, d.RegisterBuffer(base, 1<<20, 0), Success)
	}},
}

// fileLines covers cuFileHandleRegister to cuFileWrite (§4.2).
var fileLines = []line{
	{"002.1.9.0", "a file is registered", func(t *testing.T, s *site) { s.handle(t, s.open(t, nil), os.O_RDWR) }},
	{"002.1.9.5001", "not with a closed driver", func(t *testing.T, s *site) {
		_, err := s.closed(t).RegisterFile(s.file(t, os.O_RDWR))
		want(t, err, DriverNotInitialized)
	}},
	{"002.1.9.5022", "no file, or a closed one", func(t *testing.T, s *site) {
		d, f := s.open(t, nil), s.file(t, os.O_RDWR)
		_, err := d.RegisterFile(nil)
		want(t, err, InvalidValue)
		_ = f.Close()
		_, err = d.RegisterFile(f)
		want(t, err, InvalidValue)
	}},
	{"002.1.9.5019", "flags of open that are refused", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		for _, flag := range []int{unix.O_APPEND, unix.O_NONBLOCK, unix.O_NOFOLLOW, unix.O_NOATIME} {
			_, err := d.RegisterFile(s.file(t, os.O_RDWR|flag))
			want(t, err, InvalidFileOpenFlag)
		}
		fd, err := unix.Open(s.folder, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "a file without a name")
		defer func() { _ = f.Close() }()
		_, err = d.RegisterFile(f)
		want(t, err, InvalidFileOpenFlag)
	}},
	{"002.1.9.5018", "a folder, a character device and a symbolic link", func(t *testing.T, s *site) {
		d, link := s.open(t, nil), filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(s.folder, link); err != nil {
			t.Fatal(err)
		}
		for path, flags := range map[string]int{s.folder: unix.O_RDONLY, "/dev/null": unix.O_RDONLY, link: unix.O_PATH | unix.O_NOFOLLOW} {
			fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			f := os.NewFile(uintptr(fd), path)
			_, err = d.RegisterFile(f)
			want(t, err, InvalidFileType)
			_ = f.Close()
		}
	}},
	{"002.1.9.5028", "a descriptor is registered once", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		h := s.handle(t, d, os.O_RDWR)
		_, err := d.RegisterFile(h.caller)
		want(t, err, HandleAlreadyRegistered)
	}},
	{"002.1.9.effects", "what is refused leaves no trace", func(t *testing.T, s *site) {
		d, f := s.open(t, nil), s.file(t, os.O_RDWR|unix.O_APPEND)
		before := descriptors(t)
		_, err := d.RegisterFile(f)
		want(t, err, InvalidFileOpenFlag)
		if after := descriptors(t); after != before {
			t.Errorf("%d descriptors, and %d before", after, before)
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFL, s.flags); err != nil {
			t.Fatal(err)
		}
		_, err = d.RegisterFile(f)
		want(t, err, Success)
	}},
	{"002.1.10.0", "a file is deregistered", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		h := s.handle(t, d, os.O_RDWR)
		want(t, h.Deregister(), Success)
		_, err := d.RegisterFile(h.caller)
		want(t, err, Success)
	}},
	{"002.1.10.descriptor", "the descriptor stays the caller's to close", func(t *testing.T, s *site) {
		h := s.handle(t, s.open(t, nil), os.O_RDWR)
		want(t, h.Deregister(), Success)
		if err := h.caller.Close(); err != nil {
			t.Error(err)
		}
	}},
	{"002.1.10.lazy", "closing the driver releases files", func(t *testing.T, s *site) {
		before := descriptors(t)
		d := s.open(t, nil)
		h := s.handle(t, d, os.O_RDWR)
		want(t, d.Close(), Success)
		_ = h.caller.Close()
		if after := descriptors(t); after > before {
			t.Errorf("%d descriptors, and %d before", after, before)
		}
	}},
	{"002.1.11.bytes", "read returns the bytes that it has read", func(t *testing.T, s *site) { s.roundTrip(t, s.open(t, nil), 100_000) }},
	{"002.1.11.errno", "an error of reading is the kernel's errno", func(t *testing.T, s *site) {
		_, base := s.memory(t, 1<<20)
		if n, err := s.handle(t, s.open(t, nil), os.O_WRONLY).Read(base, 300_000, 0, 0); n != 0 || !errors.Is(err, s.unreadable()) {
			t.Errorf("%d, %v", n, err)
		}
	}},
	{"002.1.11.status", "other errors of reading are statuses", func(t *testing.T, s *site) { s.refusals(t, (*File).Read) }},
	{"002.1.11.alignment", "read and write with any alignment", transfers},
	{"002.1.11.base", "reading with an offset in registered memory", func(t *testing.T, s *site) { s.withOffset(t, false) }},
	{"002.1.12.bytes", "write returns the bytes that it has written", func(t *testing.T, s *site) {
		b, base := s.memory(t, 1<<20)
		pattern(b)
		h := s.handle(t, s.open(t, nil), os.O_RDWR)
		for _, size := range []int{0, 1, 4096, 1 << 20} {
			if n, err := h.Write(base, size, 0, 0); n != size || err != nil {
				t.Errorf("%d: %d, %v", size, n, err)
			}
		}
		holds(t, h, 0, b)
	}},
	{"002.1.12.errno", "an error of writing is the kernel's errno", func(t *testing.T, s *site) {
		_, base := s.memory(t, 1<<20)
		if n, err := s.handle(t, s.open(t, nil), os.O_RDONLY).Write(base, 300_000, 0, 0); n != 0 || !errors.Is(err, s.unwritable()) {
			t.Errorf("%d, %v", n, err)
		}
	}},
	{"002.1.12.status", "other errors of writing are statuses", func(t *testing.T, s *site) { s.refusals(t, (*File).Write) }},
	{"002.1.12.alignment", "writing with an offset in registered memory", func(t *testing.T, s *site) { s.withOffset(t, true) }},
	{"002.1.12.durable", "what is written is on the disk after Sync, and with O_SYNC", func(t *testing.T, s *site) {
		d := s.open(t, nil)
		b, base := s.memory(t, 8192)
		pattern(b)
		for _, flags := range []int{os.O_RDWR, os.O_RDWR | os.O_SYNC} {
			h := s.handle(t, d, flags)
			_, err := h.Write(base, len(b), 0, 0)
			want(t, errors.Join(err, h.Sync()), Success)
			for _, o := range []opened{h.direct, h.buffered} {
				if now, err := unix.FcntlInt(uintptr(o.fd), unix.F_GETFL, 0); err == nil && now&os.O_SYNC != flags&os.O_SYNC {
					t.Errorf("opened with %#x, written with %#x", flags, now)
				}
			}
			holds(t, h, 0, b)
		}
	}},
}

// descriptors returns the number of open descriptors of the process.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// roundTrip writes a file and reads it.
func (s *site) roundTrip(t *testing.T, d *Driver, size int) {
	t.Helper()
	h := s.handle(t, d, os.O_RDWR)
	b, base := s.memory(t, size)
	pattern(b)
	if n, err := h.Write(base, size, 0, 0); n != size || err != nil {
		t.Fatalf("%d written, %v", n, err)
	}
	holds(t, h, 0, b)
	back, to := s.memory(t, size)
	if n, err := h.Read(to, size, 0, 0); n != size || err != nil || !slices.Equal(b, back) {
		t.Errorf("%d of %d read, %v, or others than those written", n, size, err)
	}
}

// unreadable returns the error of reading a file that was opened for writing.
func (s *site) unreadable() error {
	if s.released {
		return InvalidFileOpenFlag
	}
	return unix.EBADF
}

// unwritable returns the error of writing a file that was opened for reading.
func (s *site) unwritable() error {
	if s.released {
		return unix.EIO
	}
	return unix.EBADF
}

// tells checks that properties have the values that were set. libcufile reports its defaults, whatever was set.
func (s *site) tells(t *testing.T, p Properties, asSet bool) {
	t.Helper()
	if s.released {
		asSet = p.MaxDirectIO == 16384 && p.MaxDeviceCache == 131072 && p.MaxPinned == 33554432 && !p.Poll && p.PollThreshold == 4
	}
	if !asSet {
		t.Errorf("%+v", p)
	}
}

// leastPiece returns the smallest size of pieces, in KiB. libcufile refuses one below per_buffer_cache_size_kb.
func (s *site) leastPiece() uint64 {
	if s.config.Library != "" {
		return 1024
	}
	return 4
}

// withOffset reads or writes at an offset in registered memory.
func (s *site) withOffset(t *testing.T, write bool) {
	d := s.open(t, nil)
	h := s.handle(t, d, os.O_RDWR)
	b, base := s.memory(t, 64<<10)
	pattern(b)
	want(t, d.RegisterBuffer(base, len(b), 0), Success)
	if n, err := h.Write(base, 5000, 0, 12345); n != 5000 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	holds(t, h, 0, b[12345:17345])
	if write {
		return
	}
	if n, err := h.Read(base, 5000, 0, 40001); n != 5000 || err != nil || !slices.Equal(b[40001:45001], b[12345:17345]) {
		t.Errorf("%d, %v, or other bytes", n, err)
	}
}

// refusals checks the statuses of a read or write.
func (s *site) refusals(t *testing.T, move func(*File, uintptr, int, int64, int64) (int, error)) {
	d := s.open(t, nil)
	h := s.handle(t, d, os.O_RDWR)
	b, base := s.memory(t, 1<<20)
	want(t, d.RegisterBuffer(base, len(b), 0), Success)
	for _, c := range []struct {
		base   uintptr
		size   int
		at, in int64
		want   Status
	}{
		{0, 1, 0, 0, InvalidValue},
		{base, -1, 0, 0, InvalidValue},
		{base, 1, -1, 0, InvalidValue},
		{base, 1, 0, -1, InvalidValue},
		{base, 4096, 0, int64(len(b)) - 4095, InvalidMappingRange},
	} {
		_, err := move(h, c.base, c.size, c.at, c.in)
		want(t, err, c.want)
	}
	want(t, h.Deregister(), Success)
	_, err := move(h, base, 1, 0, 0)
	want(t, err, HandleNotRegistered)
	want(t, d.Close(), Success)
	_, err = move(h, base, 1, 0, 0)
	want(t, err, DriverNotInitialized)
}
