// SPDX-License-Identifier: Apache-2.0

package share

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// await waits until holds returns true. The time limit only ends a test that would hang.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for begin := time.Now(); !holds(); time.Sleep(50 * time.Microsecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("in a minute not: %s", what)
		}
	}
}

// A camera emits a frame for each element of next.
type camera struct {
	format pipeline.Format
	pool   *pipeline.Pool
	next   chan func(*pipeline.Frame)
}

func (c *camera) Format() pipeline.Format { return c.format }

func (c *camera) Status() pipeline.SourceStatus { return pipeline.SourceStatus{Slots: c.pool.Len()} }

func (c *camera) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	for n := uint64(1); ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case change, more := <-c.next:
			if !more {
				return nil
			}
			f, err := c.pool.Wait(ctx)
			if err != nil {
				return err
			}
			f.Sequence, f.Times.Captured = n, time.Unix(1700000000, int64(n))
			for i := 0; i < len(f.Bytes); i += 8 {
				binary.LittleEndian.PutUint64(f.Bytes[i:], (n%256)*0x0101010101010101)
			}
			f.CRC = crc32.Checksum(f.Bytes, castagnoli)
			change(f)
			emit(f)
		}
	}
}

// A studio is a camera with one shared output.
type studio struct {
	t       testing.TB
	camera  *camera
	sink    *Sink
	output  *pipeline.Output
	done    chan error
	emitted uint64
	once    sync.Once
}

// newStudio makes a studio with frames of 64 x 48 grey samples in shared memory.
func newStudio(t testing.TB, c Config) *studio {
	t.Helper()
	memory, err := cudahost.Open(cudahost.Config{Backend: "host", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return newStudioIn(t, c, memory)
}

// newStudioIn is newStudio with memory from the given allocator.
func newStudioIn(t testing.TB, c Config, memory cudahost.Allocator) *studio {
	t.Helper()
	f, err := pipeline.NewFormat(pipeline.Grey, 64, 48, pipeline.Rate{Num: 30, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	c.sweep = cmp.Or(c.sweep, time.Millisecond)
	c.Name, c.Socket, c.Logger = "front", filepath.Join(t.TempDir(), "s"), cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	var slots []pipeline.Slot
	for range Holds(c.Consumers, c.Frames) + 4 + 2 {
		b, err := memory.AllocHost(f.Size(), cudahost.Mapped|cudahost.Shared)
		if err != nil {
			t.Fatal(err)
		}
		file, offset := b.File()
		slots = append(slots, pipeline.Slot{Bytes: b.Bytes(), File: file, Offset: offset, Close: b.Close})
	}
	sink, err := New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	s := &studio{t: t, camera: &camera{f, pipeline.NewPool("camera", f, slots, nil), make(chan func(*pipeline.Frame))}, sink: sink, done: make(chan error, 1)}
	graph := pipeline.NewGraph(pipeline.GraphConfig{Logger: c.Logger})
	if err := graph.AddSource("camera", s.camera); err != nil {
		t.Fatal(err)
	}
	if s.output, err = graph.Attach(pipeline.OutputConfig{Name: "front", From: "camera", Sink: sink, Depth: 4, Policy: pipeline.Block}); err != nil {
		t.Fatal(err)
	}
	go func() { s.done <- graph.Run(context.Background()) }()
	<-graph.Started()
	t.Cleanup(s.end)
	return s
}

// emit emits n frames, each when the output has processed the previous one.
func (s *studio) emit(n int, change func(*pipeline.Frame)) {
	s.t.Helper()
	if change == nil {
		change = func(*pipeline.Frame) {}
	}
	for range n {
		s.camera.next <- change
		s.emitted++
		await(s.t, "the output has looked at the frame", func() bool { return s.output.Stats().Delivered == s.emitted })
	}
}

// manySlots is the number of slots that emitElsewhere uses in turn.
const manySlots = 4

// emitElsewhere emits a frame in the slot after that of frame n-1. Meanwhile the slots before it are taken.
func (s *studio) emitElsewhere(n int, change func(*pipeline.Frame)) {
	s.t.Helper()
	await(s.t, "all slots are free", func() bool { return s.camera.pool.Leased() == 0 })
	var taken []*pipeline.Frame
	for range n % manySlots {
		taken = append(taken, s.camera.pool.Get())
	}
	s.emit(1, change)
	for _, f := range slices.Backward(taken) {
		f.Release()
	}
}

// end ends the camera. The counters must be exact, and every slot free.
func (s *studio) end() {
	s.once.Do(func() {
		close(s.camera.next)
		if err := errors.Join(<-s.done, s.sink.Close()); err != nil {
			s.t.Error(err)
		}
		if st := s.output.Stats(); st.Captured != s.emitted || st.Delivered != s.emitted {
			s.t.Errorf("%d frames, %+v", s.emitted, st)
		}
		if n := s.camera.pool.Leased(); n != 0 {
			s.t.Errorf("%d slots are lost", n)
		}
		if err := s.camera.pool.Close(); err != nil {
			s.t.Error(err)
		}
	})
}

// dial connects a client, which is closed at the end of the test.
func (s *studio) dial(c ClientConfig) *Client {
	s.t.Helper()
	c.Socket = s.sink.cfg.Socket
	k, err := Dial(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = k.Close() })
	return k
}

// check returns an error if a frame is not as the camera made it.
func check(f *SharedFrame) error {
	want := bytes.Repeat([]byte{byte(f.Sequence)}, 64*48)
	if !bytes.Equal(f.Bytes, want) || !f.HasCRC || crc32.Checksum(f.Bytes, castagnoli) != f.CRC || f.Times.Captured.UnixNano() != 17e17+int64(f.Sequence) {
		return fmt.Errorf("frame %d is wrong: %d bytes with CRC %08x, %+v", f.Sequence, len(f.Bytes), f.CRC, f.Times)
	}
	return nil
}

// next takes a frame and checks it.
func next(t testing.TB, k *Client) *SharedFrame {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f, err := k.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := check(f); err != nil {
		t.Error(err)
	}
	return f
}

// A survivor is a client that takes every frame and loses none.
type survivor struct {
	studio *studio
	got    atomic.Uint64
	wrong  atomic.Pointer[error] // error that ended it, other than the end of its connection
	done   chan struct{}
}

// survive connects a survivor.
func (s *studio) survive() *survivor {
	k, v := s.dial(ClientConfig{Policy: pipeline.Block}), &survivor{studio: s, done: make(chan struct{})}
	go func() {
		defer close(v.done)
		for {
			if err := v.takeFrame(k); err != nil {
				if !errors.Is(err, ErrClosed) {
					v.wrong.Store(&err)
				}
				return
			}
		}
	}()
	s.t.Cleanup(func() { s.end(); <-v.done; v.well() })
	await(s.t, "the survivor is ready", func() bool { return s.idle(1) })
	return v
}

// takeFrame takes a frame, checks it, and returns it.
func (v *survivor) takeFrame(k *Client) error {
	f, err := k.Next(context.Background())
	if err != nil {
		return err
	}
	if err := check(f); err != nil {
		return err
	}
	if f.Lost > 0 || f.Offered != v.got.Load()+1 {
		return fmt.Errorf("frame %d: lost %d, %d of %d", f.Sequence, f.Lost, v.got.Load()+1, f.Offered)
	}
	if err := f.Release(); err != nil {
		return err
	}
	v.got.Add(1)
	return nil
}

// well reports the survivor's error, if any.
func (v *survivor) well() {
	if err := v.wrong.Load(); err != nil {
		v.studio.t.Error(*err)
	}
}

// subscribed returns the number of subscribers, without reading consumers' messages.
func (s *studio) subscribed() int {
	s.sink.mu.Lock()
	defer s.sink.mu.Unlock()
	return len(s.sink.consumers)
}

// idle reports whether the first n consumers are ready for all frames that they may hold.
func (s *studio) idle(n int) bool {
	s.sink.mu.Lock()
	defer s.sink.mu.Unlock()
	for i := range n {
		if i >= len(s.sink.consumers) || int(s.sink.consumers[i].credits) != s.sink.cfg.Frames {
			return false
		}
	}
	return true
}

// emit emits n frames, each of which the survivor must get.
func (v *survivor) emit(n int) {
	v.studio.t.Helper()
	for range n {
		want := v.got.Load() + 1
		v.studio.emit(1, nil)
		await(v.studio.t, "the survivor has given the frame back", func() bool {
			v.well()
			return v.got.Load() >= want && v.studio.idle(1) || v.wrong.Load() != nil
		})
	}
}
