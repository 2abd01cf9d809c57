// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func format(t testing.TB, p pipeline.PixelFormat, width, height int) pipeline.Format {
	t.Helper()
	f, err := pipeline.NewFormat(p, width, height, pipeline.Rate{Num: 1000, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// paint fills the pixels of frame n.
func paint(b []byte, n uint64) {
	for i := range b {
		b[i] = byte(uint64(i)*7 + uint64(i)>>8 + n*31)
	}
}

// A camera emits a frame for each function that it gets from next.
type camera struct {
	format  pipeline.Format
	pool    *pipeline.Pool
	next    chan func(*pipeline.Frame)
	emitted uint64
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
			f := c.pool.Get() // the graph makes sure that there is one
			if f == nil {
				return errors.New("the camera has no slot: somebody holds more than it said")
			}
			f.Sequence = n
			f.Times.Captured = time.Now()
			paint(f.Bytes, n)
			change(f)
			emit(f)
		}
	}
}

// A studio is a camera, its graph and an output for each sink.
type studio struct {
	t       testing.TB
	camera  *camera
	graph   *pipeline.Graph
	outputs []*pipeline.Output
	sinks   []*Sink
	done    chan error
	once    sync.Once
}

func newStudio(t testing.TB, f pipeline.Format, slots int, sinks ...*Sink) *studio {
	t.Helper()
	var list []pipeline.Slot
	for range slots {
		list = append(list, pipeline.Slot{Bytes: make([]byte, f.Size())})
	}
	s := &studio{t: t, camera: &camera{f, pipeline.NewPool("camera", f, list, nil), make(chan func(*pipeline.Frame)), 0}, sinks: sinks, done: make(chan error, 1)}
	s.graph = pipeline.NewGraph(pipeline.GraphConfig{Logger: quiet()})
	if err := s.graph.AddSource("camera", s.camera); err != nil {
		t.Fatal(err)
	}
	for _, k := range sinks {
		o, err := s.graph.Attach(pipeline.OutputConfig{Name: k.name, From: "camera", Sink: k, Depth: 4, Policy: pipeline.Block})
		if err != nil {
			t.Fatal(err)
		}
		s.outputs = append(s.outputs, o)
	}
	go func() { s.done <- s.graph.Run(context.Background()) }()
	<-s.graph.Started()
	t.Cleanup(s.end)
	return s
}

// idle reports whether all receivers of a stream have taken everything that was sent and returned all buffers. A
// receiver named "stopped", which never does, is left out.
func (k *Sink) idle() bool {
	k.hub.mu.Lock()
	defer k.hub.mu.Unlock()
	for s := range k.hub.sessions {
		if s.sink == k && s.state != taking { // it has been accepted, but is not among the receivers yet
			return false
		}
	}
	for _, s := range k.receivers {
		if s.from != "stopped" && (len(s.flying) > 0 || s.credits != s.wants.credits) {
			return false
		}
	}
	return true
}

// emit emits n frames, each when the receivers are ready. When it returns, the outputs have the last frame; use offered
// to wait for the sinks.
func (s *studio) emit(n int, change func(*pipeline.Frame)) {
	s.t.Helper()
	if change == nil {
		change = func(*pipeline.Frame) {}
	}
	for range n {
		for _, k := range s.sinks {
			await(s.t, "the receivers to be ready", k.idle)
		}
		s.camera.next <- change
		s.camera.emitted++
		for _, o := range s.outputs {
			await(s.t, "the output to take the frame", func() bool {
				st := o.Stats()
				return st.Captured == s.camera.emitted
			})
		}
	}
}

// offered waits until the sink has offered each receiver the given number of frames.
func offered(t *testing.T, k *Sink, frames ...uint64) {
	t.Helper()
	await(t, "the frames to be offered", func() bool {
		for i, r := range k.Stats().Receivers {
			if r.Offered != frames[i] {
				return false
			}
		}
		return true
	})
}

// end ends the camera. The counters must be exact, and every slot free.
func (s *studio) end() {
	s.once.Do(func() {
		close(s.camera.next)
		if err := <-s.done; err != nil {
			s.t.Error(err)
		}
		for _, o := range s.outputs {
			if st := o.Stats(); st.Captured != st.Delivered+st.Drops() {
				s.t.Errorf("books: %+v", st)
			}
		}
		if err := errors.Join(s.graph.Close(), s.camera.pool.Close()); err != nil {
			s.t.Error(err)
		}
	})
}

// await waits until so returns true. The time limit is long enough for a slow machine.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	for begin := time.Now(); !so(); time.Sleep(100 * time.Microsecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

var errCut = errors.New("the line is cut")

// A line is one end of an in-memory connection.
type line struct {
	peer    *line
	deliver func(incoming)
	failed  func(error)

	mu      sync.Mutex
	queue   []func()
	busy    bool
	dead    bool
	flying  map[int]func(error)
	number  int
	damages func(parts [][]byte) [][]byte
}

// post runs a function on the line's goroutine, in order.
func (l *line) post(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, f)
	if l.busy {
		return
	}
	l.busy = true
	go func() {
		for {
			l.mu.Lock()
			if len(l.queue) == 0 {
				l.busy = false
				l.mu.Unlock()
				return
			}
			next := l.queue[0]
			l.queue = l.queue[1:]
			l.mu.Unlock()
			next()
		}
	}()
}

// Send implements link.
func (l *line) Send(m *ucx.Outgoing, done func(error)) error {
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		return errCut
	}
	var data []byte
	for _, p := range m.Data {
		data = append(data, p...)
	}
	in := incoming{id: m.ID, header: append([]byte(nil), m.Header...), data: data, length: len(data)}
	if m.Protocol == ucx.Rendezvous {
		l.number++
		number := l.number
		l.flying[number] = done
		parts := m.Data
		in.data, in.fetch = nil, func(slot int, got func(int, error)) error { return l.fetch(number, parts, slot, got) }
	}
	l.mu.Unlock()
	l.peer.post(func() {
		if l.peer.deliver != nil {
			l.peer.deliver(in)
		}
	})
	if m.Protocol != ucx.Rendezvous && done != nil {
		done(nil)
	}
	return nil
}

// slots maps each line to a function that returns the memory of a slot, for fetched frames.
var slots sync.Map

func (l *line) fetch(number int, parts [][]byte, slot int, got func(int, error)) error {
	l.mu.Lock()
	done := l.flying[number]
	delete(l.flying, number)
	if l.damages != nil {
		parts = l.damages(parts)
	}
	l.mu.Unlock()
	if done == nil {
		l.peer.post(func() { got(0, errCut) })
		return nil
	}
	where, _ := slots.Load(l.peer)
	n := 0
	for _, p := range parts {
		n += copy(where.(func(int) []byte)(slot)[n:], p)
	}
	l.peer.post(func() { got(n, nil) })
	l.post(func() { done(nil) })
	return nil
}

// end implements link.
func (l *line) end(ended func()) {
	l.peer.post(func() { // after everything that was sent
		l.cut()
		l.peer.cut()
		ended()
	})
}

func (l *line) cut() {
	l.mu.Lock()
	dead, flying := l.dead, l.flying
	l.dead, l.flying = true, map[int]func(error){}
	l.mu.Unlock()
	for _, done := range flying {
		l.post(func() { done(errCut) })
	}
	if !dead && l.failed != nil {
		l.post(func() { l.failed(errCut) })
	}
}

func newLines() (here, there *line) {
	here, there = &line{flying: map[int]func(error){}}, &line{flying: map[int]func(error){}}
	here.peer, there.peer = there, here
	return here, there
}

// call connects to a hub.
func call(h *hub, from string) (own *line, s *session) {
	sender, own := newLines()
	s = h.connected(sender, from, time.Now())
	if s != nil {
		sender.deliver = func(m incoming) { s.receive(m, time.Now()) }
		sender.failed = s.failed
	}
	return own, s
}

// listener creates a receiver of a hub's stream.
func listener(t testing.TB, h *hub, c ReceiverConfig, change func(own *line)) *Receiver {
	t.Helper()
	c.Address, c.Logger = "memory:1", quiet()
	r, err := newReceiver(c, "1.13.1")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var list []pipeline.Slot
	r.shut = func() error { return nil }
	r.register = func(s pipeline.Slot, _ int) error {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, s)
		return nil
	}
	r.dial = func(_ context.Context, a *attempt) (link, error) {
		own, s := call(h, t.Name())
		if s == nil {
			return nil, errCut
		}
		slots.Store(own, func(slot int) []byte {
			mu.Lock()
			defer mu.Unlock()
			return list[slot].Bytes
		})
		own.deliver = func(m incoming) { a.receive(m, time.Now()) }
		own.failed = a.fail
		if change != nil {
			change(own)
		}
		return own, nil
	}
	return r
}

// dialTo makes connections whose other end is played by a test.
func dialTo(play func(own *line, a *attempt)) func(context.Context, *attempt) (link, error) {
	return func(_ context.Context, a *attempt) (link, error) {
		own, _ := newLines()
		own.deliver = func(m incoming) { a.receive(m, time.Now()) }
		own.failed = a.fail
		slots.Store(own, func(slot int) []byte { return make([]byte, 1<<20) })
		play(own, a)
		return own, nil
	}
}
