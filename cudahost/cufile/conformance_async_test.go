// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
)

// standIn opens CUDA if there is a GPU, else a stand-in whose streams are threads.
func standIn(t *testing.T) *cudahost.Device {
	t.Helper()
	quiet := cudahost.Config{Backend: "cuda", Logger: slog.New(slog.DiscardHandler)}
	a, err := cudahost.Open(quiet)
	if errors.Is(err, cudahost.ErrNoCUDA) {
		library := filepath.Join(t.TempDir(), "libcuda.so.1")
		cudatest.Library(t, library, "../../pipeline/isp/cuda/testdata/device.cpp")
		if _, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_GLOBAL); err != nil { // makes it available under its name
			t.Fatal(err)
		}
		a, err = cudahost.Open(quiet)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a.(*cudahost.CUDA).Device
}

// A turn has a file, memory and a stream for transfers.
type turn struct {
	d      *Driver
	h      *File
	b      []byte
	base   uintptr
	stream *cudahost.Stream
	a      *Async
	// move is ReadAsync or WriteAsync.
	move func(h *File, s Stream, base uintptr, a *Async) error
}

const turnSize = 64 << 10 // size of its memory, and of the file to read

func (s *site) turn(t *testing.T, write bool, flags int) *turn {
	t.Helper()
	w := &turn{d: s.open(t, nil), move: (*File).ReadAsync}
	f := s.file(t, flags)
	if w.b, w.base = s.memory(t, turnSize); write {
		w.move = (*File).WriteAsync
		pattern(w.b)
	} else {
		content := make([]byte, turnSize)
		pattern(content)
		if err := os.WriteFile(f.Name(), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.h, err = w.d.RegisterFile(f); err != nil {
		t.Fatal(err)
	}
	if w.stream, err = s.device.NewStream(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { want(t, w.stream.Close(), Success) })
	memory, _ := s.memory(t, 4096)
	w.a = (*Async)(unsafe.Pointer(&memory[0]))
	w.a.Size = turnSize
	return w
}

// result submits the transfer, waits for the stream, and returns the result.
func (w *turn) result(t *testing.T) (int, error) {
	t.Helper()
	want(t, w.move(w.h, w.stream, w.base, w.a), Success)
	want(t, w.stream.Synchronize(), Success)
	return w.a.Result()
}

// TestGPURegisteredStreams checks that no transfer on another stream is lost after a stream was registered. NVIDIA's
// libcufile loses up to one in a hundred if it is told of the registration (the package's comment).
func TestGPURegisteredStreams(t *testing.T) {
	c, config := realLibrary(t)
	s := &site{config: config, folder: t.TempDir(), memory: hostMemory(c), device: c.Device, released: true}
	w := s.turn(t, true, os.O_RDWR)
	for i := range 10000 {
		stream, err := c.Device.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			want(t, w.d.RegisterStream(stream, 0), Success)
		}
		round := *w
		round.stream, round.a.result = stream, 0
		if n, err := round.result(t); n != turnSize || err != nil {
			t.Errorf("round %d: %d bytes, %v", i, n, err)
		}
		if i%2 == 0 {
			want(t, w.d.DeregisterStream(stream), Success)
		}
		want(t, stream.Close(), Success)
	}
}

// refusing is a stream to which CUDA adds no work.
type refusing struct{}

func (refusing) Handle() uintptr   { return 77 }
func (refusing) Call(func()) error { return &cudahost.Error{Call: "cuLaunchHostFunc", Code: 400} }

// asyncLines covers cuFileReadAsync and cuFileWriteAsync (§4.4).
func asyncLines(number string, write bool) []line {
	whole := func(t *testing.T, w *turn) {
		content := make([]byte, turnSize)
		pattern(content)
		if holds(t, w.h, 0, content); !bytes.Equal(w.b, content) {
			t.Error("the memory has other bytes than the file")
		}
	}
	return []line{
		{number + ".0", "a transfer in a stream", func(t *testing.T, s *site) {
			w := s.turn(t, write, os.O_RDWR)
			if n, err := w.result(t); n != turnSize || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			whole(t, w)
		}},
		{number + ".5022", "what is refused when it is submitted", func(t *testing.T, s *site) {
			w := s.turn(t, write, os.O_RDWR)
			want(t, w.move(w.h, w.stream, 0, w.a), InvalidValue)
			want(t, w.move(w.h, w.stream, w.base, nil), InvalidValue)
			want(t, w.d.RegisterStream(nil, 0), InvalidValue)
			want(t, w.d.RegisterStream(w.stream, 16), InvalidValue)
			want(t, w.d.DeregisterStream(w.stream), InvalidValue)
			want(t, w.d.RegisterStream(w.stream, 15), Success)
			want(t, w.d.RegisterStream(w.stream, 15), InvalidValue)
			w.a.Size = 4095
			want(t, w.move(w.h, w.stream, w.base, w.a), InvalidValue)
			want(t, w.d.DeregisterStream(w.stream), Success)
			want(t, w.h.Deregister(), Success)
			want(t, w.move(w.h, w.stream, w.base, w.a), HandleNotRegistered)
			want(t, w.d.Close(), Success)
			want(t, w.move(w.h, w.stream, w.base, w.a), DriverNotInitialized)
		}},
		{number + ".cuda", "a stream that CUDA does not take", func(t *testing.T, s *site) {
			if s.config.Library != "" {
				return // without libcufile, which would detect an invalid stream
			}
			w := s.turn(t, write, os.O_RDWR)
			var e *cudahost.Error
			err := w.move(w.h, refusing{}, w.base, w.a)
			if want(t, err, CUDADriverError); !errors.As(err, &e) || e.Code != 400 {
				t.Errorf("%v", err)
			}
			want(t, w.d.Close(), Success) // waits for nothing
		}},
		{number + ".bytes", "the bytes that were transferred", func(t *testing.T, s *site) {
			w := s.turn(t, write, os.O_RDWR)
			w.a.FileOffset = 1000
			expect := turnSize
			if !write {
				expect -= 1000 // a short read at the end of the file
			}
			if n, err := w.result(t); n != expect || err != nil {
				t.Errorf("%d, want %d: %v", n, expect, err)
			}
		}},
		{number + ".errno", "an error of the file", func(t *testing.T, s *site) {
			w := s.turn(t, write, map[bool]int{true: os.O_RDONLY, false: os.O_WRONLY}[write])
			expect := error(unix.EIO)
			if !write && s.released {
				expect = InvalidFileOpenFlag
			}
			if n, err := w.result(t); n != 0 || !errors.Is(err, expect) {
				t.Errorf("%d, %v", n, err)
			}
		}},
		{number + ".status", "an error that is a status", func(t *testing.T, s *site) {
			w := s.turn(t, write, os.O_RDWR)
			want(t, w.d.RegisterBuffer(w.base, turnSize, 0), Success)
			w.a.Offset = 1
			_, err := w.result(t)
			if s.released {
				want(t, err, InvalidMappingSize)
				return
			}
			want(t, err, InvalidMappingRange)
		}},
		{number + ".null", "without a stream the transfer is made at once", func(t *testing.T, s *site) {
			w := s.turn(t, write, os.O_RDWR)
			want(t, w.move(w.h, nil, w.base, w.a), Success)
			if n, err := w.a.Result(); n != turnSize || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			whole(t, w)
		}},
		{number + ".memory", "what is asked is read in the stream, unless it is fixed", func(t *testing.T, s *site) {
			for flags, expect := range map[StreamFlags]int{0: 4096, FixedOffset | FixedFileOffset: 4096, FixedSize: 8192, allFixed: 8192} {
				if s.config.Library != "" && flags != 0 { // fixed values must not change
					continue
				}
				w := s.turn(t, write, os.O_RDWR)
				want(t, w.d.RegisterStream(w.stream, flags), Success)
				w.a.Size = 8192
				want(t, w.stream.Call(func() { w.a.Size = 4096 }), Success)
				if expect == 8192 {
					want(t, w.stream.Call(func() { w.a.Size = 16384 }), Success) // more than requested
				}
				if n, err := w.result(t); n != expect || err != nil {
					t.Errorf("flags %#x: %d, want %d: %v", uint(flags), n, expect, err)
				}
				want(t, w.d.Close(), Success) // deregisters the stream
			}
		}},
	}
}

// streamLines covers the rules of streams (§3.6, §4.2).
var streamLines = []line{
	{"002.2.9", "CUfileFeatureFlags_t", func(t *testing.T, s *site) {
		p, err := s.open(t, nil).Properties()
		if want(t, err, Success); p.Features&(Batches|Streams) != Batches|Streams {
			t.Errorf("%+v", p)
		}
	}},
	{"002.4.9", "transfers take their turn in the stream", func(t *testing.T, s *site) {
		w := s.turn(t, true, os.O_RDWR)
		back, to := s.memory(t, turnSize)
		memory, _ := s.memory(t, 4096)
		second := (*Async)(unsafe.Pointer(&memory[0]))
		second.Size = turnSize
		for i := range 20 {
			value := byte(i)
			want(t, errors.Join(
				w.stream.Fill(w.base, value, turnSize), w.h.WriteAsync(w.stream, w.base, w.a), w.stream.Fill(w.base, 255, turnSize),
				w.h.ReadAsync(w.stream, to, second), w.stream.Fill(to, 254, 1), w.stream.Synchronize()), Success)
			if n, err := second.Result(); n != turnSize || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
			if back[0] != 254 || !bytes.Equal(back[1:], bytes.Repeat([]byte{value}, turnSize-1)) {
				t.Fatalf("round %d: something came too early or too late: %d, %d", i, back[0], back[1])
			}
		}
	}},
	{"002.4.11", "calls without a stream wait for no stream", func(t *testing.T, s *site) {
		w := s.turn(t, true, os.O_RDWR)
		hold := make(chan struct{})
		want(t, w.stream.Call(func() { <-hold }), Success)
		want(t, w.h.WriteAsync(w.stream, w.base, w.a), Success)
		if n, err := w.h.Write(w.base, 4096, 1<<20, 0); n != 4096 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		holds(t, w.h, 1<<20, w.b[:4096])
		close(hold)
		want(t, w.stream.Synchronize(), Success)
	}},
	{"002.1.2.stream", fmt.Sprintf("what is in a stream ends with %d when the driver is closed", DriverClosing), func(t *testing.T, s *site) {
		w := s.turn(t, true, os.O_RDWR)
		want(t, w.stream.Call(func() {
			for !w.d.closing.Load() {
			}
		}), Success)
		want(t, w.h.WriteAsync(w.stream, w.base, w.a), Success)
		want(t, w.d.Close(), Success)
		_, err := w.a.Result()
		if s.config.Library != "" && err == nil {
			return // libcufile creates it
		}
		want(t, err, DriverClosing)
	}},
}
