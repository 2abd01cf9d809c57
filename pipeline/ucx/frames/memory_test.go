// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

func newTestHub(t testing.TB) *hub {
	t.Helper()
	h := newHub("1.13.1", quiet())
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case now := <-time.After(tick):
				h.check(now)
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		h.close()
	})
	return h
}

func newTestSink(t testing.TB, h *hub, c StreamConfig, f pipeline.Format) *Sink {
	t.Helper()
	k, err := newSink(h, c, f, noRegister)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// taken is a received frame.
type taken struct {
	sequence uint64
	pixels   []byte
	results  []pipeline.Result
	crc      uint32
	group    uint64
}

// start connects a receiver and returns the channel of its frames, which is closed at the end.
func start(t testing.TB, r *Receiver) <-chan taken {
	t.Helper()
	if err := r.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := takeFrames(t, r)
	await(t, "the stream", func() bool { return r.Stats().Connected })
	return got
}

// takeFrames takes the frames of a connected receiver, and closes it at the end.
func takeFrames(t testing.TB, r *Receiver) <-chan taken {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	got, done := make(chan taken, 1000), make(chan struct{})
	go func() {
		defer close(done)
		defer close(got)
		err := r.Run(ctx, func(f *pipeline.Frame) {
			got <- taken{f.Sequence, append([]byte(nil), f.Bytes...), append([]pipeline.Result(nil), f.Results...), f.CRC, f.Group}
			f.Release()
		})
		if err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return got
}

func next(t testing.TB, got <-chan taken) taken {
	t.Helper()
	select {
	case x := <-got:
		return x
	case <-time.After(30 * time.Second):
		t.Fatal("no frame came")
		panic("not reached")
	}
}

// TestFrames checks whole frames, a region, and every third frame, each with its pixels, CRC and results.
func TestFrames(t *testing.T) {
	h, f := newTestHub(t), format(t, pipeline.UYVY, 64, 16)
	k := newTestSink(t, h, StreamConfig{Name: "front", Checksum: true, Receivers: 3}, f)
	s := newStudio(t, f, 16, k)
	whole := start(t, listener(t, h, ReceiverConfig{}, nil))
	region := Region{X: 8, Y: 3, Width: 20, Height: 5}
	part := start(t, listener(t, h, ReceiverConfig{Stream: "front", Region: region}, nil))
	third := start(t, listener(t, h, ReceiverConfig{Every: 3}, nil))
	await(t, "three receivers", func() bool { return len(k.Stats().Receivers) == 3 })
	for n := uint64(1); n <= 12; n++ {
		s.emit(1, func(f *pipeline.Frame) {
			if n%2 == 0 {
				f.Results = append(f.Results, pipeline.Result{Stage: "motion", Numbers: map[string]float64{"n": float64(n)}})
			}
			f.Group = n % 3 * 1e15 // some have one
			f.CRC = uint32(n % 4)  // and a CRC
			if f.CRC != 0 {
				f.CRC = checksum([][]byte{f.Bytes})
			}
		})
		want := make([]byte, f.Size())
		paint(want, n)
		x := next(t, whole)
		if x.sequence != n || x.group != n%3*1e15 || string(x.pixels) != string(want) || x.crc != checksum([][]byte{want}) {
			t.Fatalf("frame %d came as %d of group %d with CRC %#x", n, x.sequence, x.group, x.crc)
		}
		if n%2 == 0 && (len(x.results) != 1 || x.results[0].Numbers["n"] != float64(n)) || n%2 != 0 && len(x.results) != 0 {
			t.Errorf("frame %d has the results %v", n, x.results)
		}
		var cut []byte
		for y := range region.Height {
			cut = append(cut, want[(region.Y+y)*f.Stride+2*region.X:][:2*region.Width]...)
		}
		if x := next(t, part); x.sequence != n || string(x.pixels) != string(cut) {
			t.Fatalf("the region of frame %d is wrong", n)
		}
		if n%3 == 1 {
			if x := next(t, third); x.sequence != n {
				t.Errorf("every third frame: %d instead of %d", x.sequence, n)
			}
		}
	}
	if st := k.Stats(); st.Lost != 0 || st.Frames != 12+12+4 {
		t.Errorf("%+v", st)
	}
}

// TestNoCredits checks that a receiver that gives no credits loses every frame, and that no other receiver does.
func TestNoCredits(t *testing.T) {
	h, f := newTestHub(t), format(t, pipeline.Grey, 32, 16)
	k := newTestSink(t, h, StreamConfig{Name: "front", Checksum: true, Receivers: 2}, f)
	s := newStudio(t, f, 16, k)
	mute, _ := call(h, "mute")
	speak(t, mute, idHello, (&hello{oldest, newest, "1.13.1"}).append(nil))
	speak(t, mute, idSubscribe, (&subscribe{stream: "front", every: 1}).append(nil))
	r := listener(t, h, ReceiverConfig{}, nil)
	got := start(t, r)
	await(t, "two receivers", func() bool { return len(k.Stats().Receivers) == 2 })
	for n := uint64(1); n <= 50; n++ {
		s.emit(1, nil)
		if x := next(t, got); x.sequence != n {
			t.Fatalf("frame %d instead of %d", x.sequence, n)
		}
	}
	for _, x := range k.Stats().Receivers {
		if x.Address == "mute" && (x.Lost != 50 || x.Frames != 0) || x.Address != "mute" && (x.Lost != 0 || x.Frames != 50) {
			t.Errorf("%+v", x)
		}
	}
	if st := s.outputs[0].Stats(); st.Drops() != 0 {
		t.Errorf("the output has lost frames: %+v", st)
	}
}

// TestStopped checks that a receiver that has given credits but takes nothing holds two frames, and loses them when its
// time is up.
func TestStopped(t *testing.T) {
	h, f := newHub("1.13.1", quiet()), format(t, pipeline.Grey, 32, 16)
	t.Cleanup(h.close)
	k := newTestSink(t, h, StreamConfig{Name: "front", Receivers: 2}, f)
	s := newStudio(t, f, 16, k)
	stopped, session := call(h, "stopped")
	speak(t, stopped, idHello, (&hello{oldest, newest, "1.13.1"}).append(nil))
	speak(t, stopped, idSubscribe, (&subscribe{stream: "front", every: 1, credits: maxCredits}).append(nil))
	await(t, "a receiver", func() bool { return len(k.Stats().Receivers) == 1 })
	got := start(t, listener(t, h, ReceiverConfig{}, nil))
	await(t, "two receivers", func() bool { return len(k.Stats().Receivers) == 2 })
	for n := uint64(1); n <= 20; n++ {
		s.emit(1, nil)
		next(t, got)
	}
	if st := k.Stats(); st.Lost != 18 {
		t.Errorf("%+v", st)
	}
	await(t, "two slots to be held", func() bool { return s.camera.pool.Leased() == inFlight })
	h.mu.Lock()
	session.heard = time.Now().Add(patience) // it still sends signs of life
	h.mu.Unlock()
	h.check(time.Now().Add(patience / 2))
	if n := len(k.Stats().Receivers); n != 2 {
		t.Errorf("cut off too early: %d", n)
	}
	h.mu.Lock()
	for x := range h.sessions {
		x.heard = time.Now().Add(2 * patience)
	}
	h.mu.Unlock()
	h.check(time.Now().Add(patience + time.Second))
	await(t, "the slots to come back", func() bool { return s.camera.pool.Leased() == 0 })
	if st := k.Stats(); len(st.Receivers) != 1 || st.Gone != 1 {
		t.Errorf("%+v", st)
	}
}

// A deaf link accepts messages but does not complete frames until told to.
type deaf struct{ under chan func(error) }

func (d *deaf) Send(m *ucx.Outgoing, done func(error)) error {
	if m.ID == idFrame {
		d.under <- done
	}
	return nil
}

func (d *deaf) end(ended func()) { go ended() }

// join subscribes a deaf receiver to the only stream.
func join(h *hub) (*session, *deaf) {
	d := &deaf{make(chan func(error), 10)}
	x := h.connected(d, "stopped", time.Now())
	x.receive(incoming{id: idHello, data: (&hello{oldest, newest, "1.13.1"}).append(nil)}, time.Now())
	x.receive(incoming{id: idSubscribe, data: (&subscribe{every: 1, credits: maxCredits}).append(nil)}, time.Now())
	return x, d
}

// TestLent checks that a single receiver can use the share of the absent ones, and gives it up when they connect.
func TestLent(t *testing.T) {
	h, f := newTestHub(t), format(t, pipeline.Grey, 32, 16)
	k := newTestSink(t, h, StreamConfig{Name: "front", Receivers: 2}, f)
	s := newStudio(t, f, 16, k)
	_, first := join(h)
	s.emit(2*inFlight+1, nil)
	offered(t, k, 2*inFlight+1)
	_, second := join(h)
	for range 2*inFlight - 1 {
		(<-first.under)(nil)
	}
	s.emit(2*inFlight, nil)
	offered(t, k, 4*inFlight+1, 2*inFlight)
	for i, want := range []ReceiverStats{{Frames: 2*inFlight + 1, Lost: 2 * inFlight}, {Frames: inFlight, Lost: inFlight}} {
		if st := k.Stats().Receivers[i]; st.Frames != want.Frames || st.Lost != want.Lost {
			t.Errorf("receiver %d has got %d frames and lost %d, want %d and %d", i, st.Frames, st.Lost, want.Frames, want.Lost)
		}
	}
	for range inFlight {
		(<-first.under)(nil)
		(<-second.under)(nil)
	}
}

// TestGoneHolds checks that frames still held by disconnected receivers cost the others frames, but stop nobody.
func TestGoneHolds(t *testing.T) {
	h, f := newTestHub(t), format(t, pipeline.Grey, 32, 16)
	k := newTestSink(t, h, StreamConfig{Name: "front"}, f)
	s := newStudio(t, f, 16, k)
	first, held := join(h)
	s.emit(inFlight, nil)
	offered(t, k, inFlight)
	h.drop(first, bye{CodeSlow, "test"}, "here")
	_, other := join(h)
	s.emit(2, nil)
	await(t, "a frame to be sent and one to be lost", func() bool {
		st := k.Stats().Receivers[0]
		return st.Frames == 1 && st.Lost == 1
	})
	(<-held.under)(errCut)
	s.emit(1, nil)
	await(t, "a frame to be sent again", func() bool {
		st := k.Stats()
		return st.Receivers[0].Frames == 2 && st.Lost == 1
	})
	for _, done := range []func(error){<-held.under, <-other.under, <-other.under} {
		done(errCut)
	}
	await(t, "the slots to come back", func() bool { return s.camera.pool.Leased() == 0 })
}

// TestDamaged checks that a frame whose pixels change on the way is counted and not passed on.
func TestDamaged(t *testing.T) {
	h, f := newTestHub(t), format(t, pipeline.Grey, 32, 16)
	k := newTestSink(t, h, StreamConfig{Name: "front", Checksum: true}, f)
	s := newStudio(t, f, 16, k)
	r := listener(t, h, ReceiverConfig{}, func(own *line) {
		n := 0
		own.peer.damages = func(parts [][]byte) [][]byte {
			if n++; n != 2 {
				return parts
			}
			b := append([]byte(nil), parts[0]...)
			b[17] ^= 4
			return [][]byte{b}
		}
	})
	got := start(t, r)
	s.emit(1, nil)
	next(t, got)
	s.emit(1, nil)
	await(t, "the damage to be seen", func() bool { return r.Stats().Mismatched == 1 })
	s.emit(1, nil)
	if x := next(t, got); x.sequence != 3 {
		t.Errorf("frame %d", x.sequence)
	}
	if st := r.Stats(); st.Frames != 2 || st.Matched != 2 {
		t.Errorf("%+v", st)
	}
}

// TestReconnect checks that a broken connection is re-established, and that its losses are counted.
func TestReconnect(t *testing.T) {
	h, f := newTestHub(t), format(t, pipeline.Grey, 32, 16)
	k := newTestSink(t, h, StreamConfig{Name: "front", Checksum: true}, f)
	s := newStudio(t, f, 16, k)
	lines := make(chan *line, 10)
	r := listener(t, h, ReceiverConfig{}, func(own *line) { lines <- own })
	got := start(t, r)
	for n := range uint64(3) {
		s.emit(1, nil)
		next(t, got)
		cut := <-lines
		cut.cut()
		cut.peer.cut()
		await(t, "the next connection", func() bool { st := r.Stats(); return st.Connections == n+2 && st.Connected })
	}
	if st := r.Stats(); st.Frames != 3 || st.Lost+st.Broken != 0 {
		t.Errorf("%+v", st)
	}
}

// TestRefused checks that an impossible request is reported on both sides, with the reason.
func TestRefused(t *testing.T) {
	h, f := newTestHub(t), format(t, pipeline.UYVY, 32, 16)
	newTestSink(t, h, StreamConfig{Name: "front"}, f)
	newTestSink(t, h, StreamConfig{Name: "rear"}, f)
	for name, c := range map[string]struct {
		config ReceiverConfig
		local  string
		code   Code
		is     error
	}{
		"version of UCX": {ReceiverConfig{Stream: "front"}, "1.11.2", CodeVersion, nil},
		"other UCX":      {ReceiverConfig{Stream: "front"}, "2.0.0", CodeVersion, nil},
		"region":         {ReceiverConfig{Stream: "front", Region: Region{Width: 34, Height: 16}}, "1.13.1", 0, ErrRegion},
	} {
		t.Run(name, func(t *testing.T) {
			r := listener(t, h, c.config, nil)
			r.local = c.local
			err := r.start(t.Context())
			var y *ByeError
			if c.is != nil && !errors.Is(err, c.is) || c.code != 0 && (!errors.As(err, &y) || y.Code != c.code || y.Reason == "") {
				t.Error(err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, name := range []string{"", "side"} {
		r := listener(t, h, ReceiverConfig{Stream: name}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			await(t, "the trouble", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.trouble != nil
			})
			cancel()
		}()
		if err := r.start(ctx); err == nil || !contains(err.Error(), "front, rear") {
			t.Errorf("stream %q: %v", name, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTheBooksAreClosedAtTheEnd checks that a frame is counted before the job that end waits for becomes free.
// Otherwise a stream could end before its last frame is counted.
func TestTheBooksAreClosedAtTheEnd(t *testing.T) {
	f := format(t, pipeline.UYVY, 64, 2)
	k := newTestSink(t, newTestHub(t), StreamConfig{Name: "camera"}, f)
	j := <-k.jobs
	account, given := pipeline.NewAccount("camera", nil), false
	pool := pipeline.NewPool("camera", f, []pipeline.Slot{{Bytes: make([]byte, f.Size())}}, func(int) {
		given = true
		if len(k.jobs) == cap(k.jobs) {
			t.Error("end could return before the frame is counted")
		}
	})
	j.frame, j.queue = pool.Get(), pipeline.NewQueue(1, pipeline.Latest, account)
	j.holders.Store(1)
	if j.release(nil); !given || len(k.jobs) != cap(k.jobs) || account.Counts().Delivered != 1 {
		t.Errorf("given back: %v, %d of %d jobs are free, %+v", given, len(k.jobs), cap(k.jobs), account.Counts())
	}
}
