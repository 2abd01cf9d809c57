// SPDX-License-Identifier: Apache-2.0

package share

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// TestFramesReachClients checks that clients get every frame, or every third one, with everything that belongs to it,
// in the memory of the camera's slots.
func TestFramesReachClients(t *testing.T) {
	s := newStudio(t, Config{Consumers: 2, Frames: 2})
	all, some := s.dial(ClientConfig{Policy: pipeline.Block, Groups: true}), s.dial(ClientConfig{Policy: pipeline.Block, Every: 3})
	if all.Name() != "front" || all.Format() != s.camera.format {
		t.Errorf("%s, %s", all.Name(), all.Format())
	}
	await(t, "both are ready", func() bool { return s.idle(2) })
	for n := uint64(1); n <= 30; n++ {
		var made *pipeline.Frame
		s.emit(1, func(f *pipeline.Frame) {
			made = f
			f.Flags, f.Group = pipeline.FlagPadded, n<<40
			f.Results = append(f.Results, pipeline.Result{Stage: "count", Numbers: map[string]float64{"n": float64(n)}})
			if n == 30 { // larger than a message
				f.Results[0].Bins = make([]uint32, maxResults)
			}
		})
		f := next(t, all)
		if f.Sequence != n || f.Group != n<<40 || f.Offered != n || f.Lost != 0 || f.Flags != pipeline.FlagPadded || f.Format != s.camera.format {
			t.Errorf("frame %d: %+v", n, f)
		}
		if n < 30 != (len(f.Results) == 1 && f.Results[0].Numbers["n"] == float64(n)) {
			t.Errorf("frame %d: results %+v", n, f.Results)
		}
		if n == 2 { // the same memory, so the camera's writes are visible at once
			if made.Bytes[5] = 99; f.Bytes[5] != 99 {
				t.Error("the frame was copied")
			}
		}
		if err := f.Release(); err != nil {
			t.Fatal(err)
		}
		if n%3 == 1 {
			if f := next(t, some); f.Sequence != n || f.Group != 0 || f.Release() != nil {
				t.Errorf("every third: %d instead of %d", f.Sequence, n)
			}
		}
		await(t, "the frames are back", func() bool { return s.camera.pool.Leased() == 0 && s.idle(2) })
	}
	if st := s.sink.Stats(); st.Frames != 40 || st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

// TestStalledConsumer checks that a consumer that holds its maximum loses only its own frames while the other one gets
// each, and that the frames of a consumer that disconnects become free.
func TestStalledConsumer(t *testing.T) {
	s := newStudio(t, Config{Consumers: 2, Frames: 3})
	v := s.survive()
	k := s.dial(ClientConfig{Policy: pipeline.Block})
	await(t, "the other one is ready", func() bool { return s.idle(2) })
	v.emit(20)
	var held []*SharedFrame
	for range 3 {
		held = append(held, next(t, k))
	}
	if _, err := k.Next(t.Context()); !errors.Is(err, ErrHeld) {
		t.Error(err)
	}
	if st := s.sink.Stats().Consumers[1]; st.Held != 3 || st.Frames+st.Lost != 20 || !strings.Contains(st.String(), "holds 3; every 1, block") {
		t.Errorf("%+v", st)
	}
	lost := s.sink.Stats().Consumers[1].Lost
	if err := held[0].Release(); err != nil {
		t.Fatal(err)
	}
	await(t, "the frame is back", func() bool { return s.sink.Stats().Consumers[1].Held == 2 })
	v.emit(1)
	if f := next(t, k); f.Sequence != 21 || f.Lost != lost {
		t.Errorf("frame %d, lost %d instead of %d", f.Sequence, f.Lost, lost)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	await(t, "all frames are back", func() bool { return s.camera.pool.Leased() == 0 })
	if st := s.sink.Stats(); st.Gone != 1 || len(st.Consumers) != 1 {
		t.Errorf("%+v", st)
	}
}

// TestLatest checks that a consumer that was busy gets the newest frame at once.
func TestLatest(t *testing.T) {
	s := newStudio(t, Config{Consumers: 1, Frames: 2})
	k := s.dial(ClientConfig{Policy: pipeline.Latest})
	await(t, "it has subscribed", func() bool { return len(s.sink.Stats().Consumers) == 1 })
	for _, want := range []uint64{7, 14} {
		s.emit(7, nil)
		f := next(t, k)
		if f.Sequence != want || f.Lost != want/7*6 && f.Lost != want/7*6+1 {
			t.Errorf("frame %d instead of %d, lost %d", f.Sequence, want, f.Lost)
		}
		if err := f.Release(); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.emit(1, nil) // the client has already requested it
	if f := next(t, k); f.Sequence != 15 || f.Release() != nil {
		t.Error(f.Sequence)
	}
	s.end()
	var end *EndError
	if _, err := k.Next(t.Context()); !errors.Is(err, ErrClosed) || errors.As(err, &end) && end.Code != CodeEnd {
		t.Error(err)
	}
}

// TestHeardInTime checks, without the sweep, that a consumer for which a frame waits gets it when it asks, and that
// leases are returned with the next frame, or at once when the connection ends.
func TestHeardInTime(t *testing.T) {
	s := newStudio(t, Config{Consumers: 2, Frames: 2, sweep: time.Hour})
	latest, block := s.dial(ClientConfig{Policy: pipeline.Latest}), s.dial(ClientConfig{Policy: pipeline.Block})
	await(t, "both have subscribed", func() bool { return s.subscribed() == 2 })
	s.emit(1, nil) // it waits for the consumer that has not requested one
	for n := uint64(1); n <= 3; n++ {
		f := next(t, latest)
		if f.Sequence != n || f.Release() != nil {
			t.Errorf("frame %d instead of %d", f.Sequence, n)
		}
		if f := next(t, block); f.Sequence != n || f.Release() != nil {
			t.Errorf("frame %d instead of %d", f.Sequence, n)
		}
		s.emit(1, nil)
		if held := s.camera.pool.Leased(); held > 2 {
			t.Errorf("%d slots are leased for one frame", held)
		}
	}
	if err := errors.Join(latest.Close(), block.Close()); err != nil {
		t.Error(err)
	}
	await(t, "all frames are back", func() bool { return s.camera.pool.Leased() == 0 })
}

// TestWhoMayHaveFrames checks the socket's mode, the users and groups, and the number of consumers.
func TestWhoMayHaveFrames(t *testing.T) {
	me, group := uint32(os.Getuid()), uint32(os.Getgid())
	for _, c := range []struct {
		users, groups []uint32
		may           bool
	}{{nil, nil, true}, {[]uint32{me}, nil, true}, {nil, []uint32{7, group}, true}, {[]uint32{math.MaxUint32}, []uint32{math.MaxUint32}, false}} {
		s := newStudio(t, Config{Consumers: 1, Frames: 1, Users: c.users, Groups: c.groups, Mode: 0o620})
		if st, err := os.Stat(s.sink.cfg.Socket); err != nil || st.Mode() != fs.ModeSocket|0o620 {
			t.Error(st.Mode(), err)
		}
		k, err := Dial(t.Context(), ClientConfig{Socket: s.sink.cfg.Socket})
		var end *EndError
		if c.may != (err == nil) || !c.may && (!errors.As(err, &end) || end.Code != CodeRefused) {
			t.Errorf("%+v: %v", c, err)
		}
		if k == nil {
			continue
		}
		if _, err := Dial(t.Context(), ClientConfig{Socket: s.sink.cfg.Socket}); !errors.As(err, &end) || end.Code != CodeBusy || !strings.Contains(err.Error(), "busy") {
			t.Error(err)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSocketFile checks that the socket of a process that has died is removed, and nothing else.
func TestSocketFile(t *testing.T) {
	f, err := pipeline.NewFormat(pipeline.Grey, 64, 48, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	stale, file := filepath.Join(dir, "stale"), filepath.Join(dir, "file")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: stale, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(l.Close(), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	k, err := New(Config{Socket: stale}, f)
	if err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		stale: "another process already listens at", file: "is not a socket", filepath.Join(dir, "none", "s"): "its folder must exist", "here": "begins with /",
		"/" + strings.Repeat("x", maxPath): "at most 107 bytes",
	} {
		if _, err := New(Config{Socket: path}, f); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(stale); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	f.Memory = pipeline.MemoryWriteCombined
	if _, err := New(Config{Socket: stale}, f); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}

// TestUnsharedMemory checks that frames that other processes cannot map are lost, and counted.
func TestUnsharedMemory(t *testing.T) {
	f, err := pipeline.NewFormat(pipeline.Grey, 64, 48, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := New(Config{Socket: filepath.Join(t.TempDir(), "s")}, f)
	if err != nil {
		t.Fatal(err)
	}
	pool := pipeline.NewPool("test", f, []pipeline.Slot{{Bytes: make([]byte, f.Size())}}, nil)
	if err := k.offer(pool.Get()); !errors.Is(err, ErrMemory) {
		t.Error(err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Dial(t.Context(), ClientConfig{Socket: k.cfg.Socket}); !errors.Is(err, syscall.ENOENT) {
		t.Error(err)
	}
}
