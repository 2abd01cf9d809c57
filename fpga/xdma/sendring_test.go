// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// sender is a send ring on a pair.
type sender struct {
	*SendRing
	free   chan int   // slots given back
	failed chan error // why slots were abandoned
	mem    [][]byte
	ended  chan error
	cancel context.CancelFunc
}

func newSender(t testing.TB, p *pair, depth, slots int) *sender {
	t.Helper()
	s := &sender{free: make(chan int, 100), failed: make(chan error, 100), ended: make(chan error, 1)}
	var err error
	s.SendRing, err = p.device.NewSendRing(SendConfig{Trailer: 128, Depth: depth, Done: func(slot int, err error) {
		if err != nil {
			s.failed <- err
		}
		s.free <- slot
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range slots {
		s.addSlot(t, p, 960)
	}
	return s
}

func (s *sender) addSlot(t testing.TB, p *pair, segment int) {
	t.Helper()
	m := p.bus.memory(6144, segment)
	slot, err := s.Add(m)
	if err != nil || slot != len(s.mem) {
		t.Fatalf("slot %d, %v", slot, err)
	}
	s.mem = append(s.mem, m.Bytes)
	s.free <- slot
}

func (s *sender) run(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() { s.ended <- s.Run(ctx) }()
	synctest.Wait()
}

// frame fills a free slot with frame n, and returns its trailer.
func (s *sender) frame(n uint64) (slot int, trailer []byte) {
	slot = <-s.free
	fillFrame(s.mem[slot], n)
	trailer = make([]byte, 128)
	binary.LittleEndian.PutUint64(trailer, n)
	return slot, trailer
}

func fillFrame(b []byte, n uint64) {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], n)
	_, _ = rand.NewChaCha8(seed).Read(b)
}

// check receives frame n and frees its slot.
func (p *pair) check(n uint64) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	done, err := p.in.Next(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	want := make([]byte, 6144)
	fillFrame(want, n)
	if got := binary.LittleEndian.Uint64(done.Trailer); got != n || !bytes.Equal(want, p.inMem[done.Slot].Bytes) {
		p.t.Fatalf("frame %d has trailer %d, its bytes are right: %t", n, got, bytes.Equal(want, p.inMem[done.Slot].Bytes))
	}
	if err := p.in.Free(done.Slot); err != nil {
		p.t.Fatal(err)
	}
}

func (s *sender) stop(t testing.TB) {
	t.Helper()
	s.cancel()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// Runs both directions at once on one device, with slots in any order and added while it runs: order and bytes must be
// correct.
func TestSendRing(t *testing.T) {
	for name, options := range map[string][]func(*Config){"interrupts": nil, "poll": {polling}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, options...)
				s := newSender(t, p, 3, 3)
				if err := p.in.Start([]int{0, 1, 2}); err != nil {
					t.Fatal(err)
				}
				s.run(t)
				go func() {
					for n := range uint64(60) {
						if n == 20 || n == 30 {
							s.addSlot(t, p, int(n)*48) // different lists of descriptors: 6144/960, 6144/1440
						}
						if n == 40 {
							s.addSlot(t, p, 6144) // one descriptor
						}
						slot, trailer := s.frame(n)
						if err := s.Send(t.Context(), slot, trailer); err != nil {
							t.Error(err)
							return
						}
					}
				}()
				for n := range uint64(60) {
					p.check(n)
				}
				if err := s.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				if n := s.Stats(); n.Frames != 60 || n.Missed != 0 {
					t.Errorf("%+v", n)
				}
				if n, err := s.Counters(); err != nil || n.Bytes < 60*6272 {
					t.Errorf("%+v, %v", n, err)
				}
				s.stop(t)
				if len(s.free) != 6 || len(s.failed) != 0 {
					t.Errorf("%d of 6 slots came back, %d abandoned", len(s.free), len(s.failed))
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Nobody receives: Send waits, and every slot comes back exactly once when the ring ends. Then the ring starts again.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		s := newSender(t, p, 12, 15)
		slot, trailer := s.frame(0)
		if err := s.Send(t.Context(), slot, trailer); !errors.Is(err, ErrStopped) {
			t.Errorf("before Run: %v", err)
		}
		s.free <- slot
		s.run(t)
		sent := 0
		for {
			slot, trailer := s.frame(uint64(sent))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := s.Send(ctx, slot, trailer)
			cancel()
			if err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				s.free <- slot
				break
			}
			sent++
		}
		through := s.Stats().Frames // the FIFO between the channels holds 64 KiB
		if through < 9 || through > 11 || sent != int(through)+12 {
			t.Errorf("%d sent, %d read by the device", sent, through)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain: %v", err)
		}
		waits := make(chan error)
		go func() {
			slot, trailer := s.frame(99)
			waits <- s.Send(context.Background(), slot, trailer)
			s.free <- slot
		}()
		time.Sleep(time.Second)
		begin := time.Now()
		s.cancel()
		err := <-s.ended
		if err := <-waits; !errors.Is(err, ErrStopped) {
			t.Errorf("Send while the ring ended: %v", err)
		}
		// The engine waits for room inside a descriptor: it cannot stop, and nothing is given back yet.
		if !errors.Is(err, ErrBusy) || time.Since(begin) > 3*time.Second {
			t.Fatalf("%v after %v, want ErrBusy", err, time.Since(begin))
		}
		synctest.Wait()
		if back := len(s.free); back != 3 {
			t.Errorf("%d slots came back while the engine is busy, want 3", back)
		}
		if err := s.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("close: %v", err)
		}
		if err := p.in.Start([]int{0, 1, 2}); err != nil { // makes room
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		s.run(t)
		if len(s.free) != 15 || len(s.failed) == 0 || len(s.failed) > 12 {
			t.Errorf("%d of 15 slots came back, %d abandoned", len(s.free), len(s.failed))
		}
		s.stop(t)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSendErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		s := newSender(t, p, 2, 2)
		s.run(t)
		trailer := make([]byte, 128)
		for _, c := range []struct {
			slot    int
			trailer []byte
			want    error
		}{{-1, trailer, ErrSlot}, {2, trailer, ErrSlot}, {0, trailer[:1], ErrMemory}} {
			if err := s.Send(t.Context(), c.slot, c.trailer); !errors.Is(err, c.want) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		p.tap.on(func(off, v uint32) uint32 { // hides completions, so that the device keeps the slot
			if off == regCompleted {
				return 0
			}
			return v
		}, nil)
		if err := s.Send(t.Context(), 0, trailer); err != nil {
			t.Error(err)
		}
		if err := s.Send(t.Context(), 0, trailer); !errors.Is(err, ErrSlot) {
			t.Errorf("slot that is with the device: %v", err)
		}
		if err := s.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("close of a running ring: %v", err)
		}
		p.tap.on(func(uint32, uint32) uint32 { return gone }, func(uint32, uint32) bool { return false })
		if err := <-s.ended; !errors.Is(err, ErrGone) {
			t.Errorf("device that leaves: %v", err)
		}
		if n := len(s.failed); n != 1 {
			t.Errorf("%d slots abandoned, want 1", n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		p.tap.on(nil, nil)
		if _, err := s.Add(p.bus.memory(100, 100)); !errors.Is(err, ErrMemory) {
			t.Errorf("slot that is not of whole beats: %v", err)
		}
		for _, c := range []SendConfig{{Trailer: 128}, {Trailer: 0, Done: func(int, error) {}}, {Trailer: 128, Depth: -1, Done: func(int, error) {}}} {
			if _, err := p.device.NewSendRing(c); !errors.Is(err, ErrMemory) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	})
}
