// SPDX-License-Identifier: Apache-2.0

package results

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/report"
)

// source emits frames with results, one for each request of the test.
type source struct {
	format pipeline.Format
	pool   *pipeline.Pool
	next   chan []pipeline.Result
}

func (s *source) Format() pipeline.Format { return s.format }

func (s *source) Status() pipeline.SourceStatus { return pipeline.SourceStatus{} }

func (s *source) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	for n := uint64(1); ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case r, more := <-s.next:
			if !more {
				return nil
			}
			f, err := s.pool.Wait(ctx)
			if err != nil {
				return nil
			}
			f.Sequence, f.Results = n, append(f.Results, r...)
			f.Times.Captured = time.Unix(1700000000, int64(n))
			emit(f)
		}
	}
}

// startGraph sends frames through a graph to a sink until the test ends. The returned function ends it and returns the
// output's counters.
func startGraph(t *testing.T, s *Sink, policy pipeline.Policy) (next chan<- []pipeline.Result, end func() pipeline.OutputStats) {
	t.Helper()
	f, err := pipeline.NewFormat(pipeline.Grey, 2, 2, pipeline.Rate{Num: 1000, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	var slots []pipeline.Slot
	for range 16 {
		slots = append(slots, pipeline.Slot{Bytes: make([]byte, f.Size())})
	}
	src := &source{f, pipeline.NewPool("frames", f, slots, nil), make(chan []pipeline.Result)}
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: slog.New(slog.DiscardHandler)})
	if err := g.AddSource("frames", src); err != nil {
		t.Fatal(err)
	}
	o, err := g.Attach(pipeline.OutputConfig{Name: "results", From: "frames", Sink: s, Depth: 8, Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- g.Run(t.Context()) }()
	end = sync.OnceValue(func() pipeline.OutputStats {
		close(src.next)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := src.pool.Close(); err != nil {
			t.Error(err)
		}
		return o.Stats()
	})
	t.Cleanup(func() { end() })
	return src.next, end
}

func open(t *testing.T, c Config) *Sink {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func listen(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	return c
}

func dial(t *testing.T, s *Sink) *bufio.Reader {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	return bufio.NewReader(c)
}

func clients(t *testing.T, s *Sink, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); s.Stats().Clients != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d clients, want %d", s.Stats().Clients, n)
		}
	}
}

var found = []pipeline.Result{{
	Stage: "motion", Regions: []pipeline.Region{{X: 1, Y: 2, Width: 3, Height: 4, Label: "car", Score: .5}}, Numbers: map[string]float64{"n": 7},
}}

// This text is also shown in docs/results-output.md.
const want = `{"frame":1,"captured":"2023-11-14T22:13:20.000000001Z",` +
	`"results":[{"stage":"motion","regions":[{"x":1,"y":2,"width":3,"height":4,"label":"car","score":0.5}],"numbers":{"n":7}}]}` + "\n"

func TestEverybodyGetsTheLine(t *testing.T) {
	a, b := listen(t), listen(t)
	s := open(t, Config{UDP: []string{a.LocalAddr().String(), b.LocalAddr().String()}, Listen: "127.0.0.1:0"})
	next, end := startGraph(t, s, pipeline.Latest)
	one, two := dial(t, s), dial(t, s)
	clients(t, s, 2)
	next <- found
	next <- nil
	for _, c := range []*net.UDPConn{a, b} {
		buf := make([]byte, 2000)
		n, err := c.Read(buf)
		if err != nil || string(buf[:n]) != want {
			t.Errorf("UDP: %v %q", err, buf[:n])
		}
	}
	for _, c := range []*bufio.Reader{one, two} {
		line, err := c.ReadString('\n')
		if err != nil || line != want {
			t.Errorf("TCP: %v %q", err, line)
		}
		var empty report.Report
		line, err = c.ReadString('\n')
		if err := errors.Join(err, json.Unmarshal([]byte(line), &empty)); err != nil || empty.Frame != 2 || empty.Results == nil {
			t.Errorf("a frame without results: %v %q", err, line)
		}
	}
	if st := end(); st.Delivered != 2 || s.Stats().Lines != 2 || s.Stats().Errors != 0 {
		t.Errorf("%+v %+v", st, s.Stats())
	}
}

// A client that reads nothing loses only its own lines; the other one gets them all, and no frame is dropped.
func TestSlowClientHoldsUpNobody(t *testing.T) {
	s := open(t, Config{Listen: "127.0.0.1:0"})
	next, end := startGraph(t, s, pipeline.Latest)
	dial(t, s) // reads nothing
	fast := dial(t, s)
	clients(t, s, 2)
	big := []pipeline.Result{{Stage: strings.Repeat("x", 200_000)}}
	const frames = 100
	for n := range frames {
		next <- big
		line, err := fast.ReadBytes('\n')
		if err != nil || !bytes.HasPrefix(line, fmt.Appendf(nil, `{"frame":%d,`, n+1)) {
			t.Fatalf("line %d: %v, %d bytes", n, err, len(line))
		}
	}
	if st := s.Stats(); st.Dropped == 0 || st.Dropped > frames {
		t.Errorf("%+v", st)
	}
	if st := end(); st.Delivered != frames || st.Drops() != 0 {
		t.Errorf("%+v", st)
	}
}

func TestClientsComeAndGo(t *testing.T) {
	s := open(t, Config{Listen: "127.0.0.1:0"})
	next, _ := startGraph(t, s, pipeline.Latest)
	var conns []net.Conn
	for range maxClients + 1 {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	clients(t, s, maxClients)
	_ = conns[maxClients].SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := conns[maxClients].Read(make([]byte, 1)); err == nil {
		t.Errorf("one client too many got %d bytes", n)
	}
	for _, c := range conns {
		c.Close()
	}
	clients(t, s, 0)
	last := dial(t, s)
	clients(t, s, 1)
	next <- found
	if _, err := last.ReadString('\n'); err != nil {
		t.Error(err)
	}
}

// afar is a connection of another machine.
type afar struct {
	net.Conn
	from string
}

func (a afar) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a.from)) }

// TestOneMachineCannotHaveAllPlaces: another one still has room.
func TestOneMachineCannotHaveAllPlaces(t *testing.T) {
	s, err := newServer("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	add := func(form string, n int) {
		for i := range n {
			here, there := net.Pipe()
			t.Cleanup(func() { here.Close() })
			s.add(afar{there, fmt.Sprintf(form, i+1)})
		}
	}
	add("192.0.2.7:%d", maxClients)
	if n, _ := s.stats(); n != maxOfAddress {
		t.Errorf("a machine has %d places", n)
	}
	add("[2001:db8::%x]:1", maxClients)
	if n, _ := s.stats(); n != maxClients {
		t.Errorf("two machines have %d places", n)
	}
}

func TestWhatCannotBeSent(t *testing.T) {
	to := listen(t)
	s := open(t, Config{UDP: []string{to.LocalAddr().String()}})
	next, end := startGraph(t, s, pipeline.Block)
	next <- []pipeline.Result{{Stage: strings.Repeat("x", maxDatagram)}}
	next <- []pipeline.Result{{Numbers: map[string]float64{"none": nan()}}}
	next <- found
	buf := make([]byte, 2000)
	if n, err := to.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), `{"frame":3,`) {
		t.Errorf("%v %q", err, buf[:n])
	}
	if st := end(); st.Delivered != 1 || st.Drops() != 2 {
		t.Errorf("%+v", st)
	}
	for _, c := range []Config{{}, {UDP: []string{"nowhere"}}, {Listen: "127.0.0.1"}} {
		if s, err := New(c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v %v", c, s, err)
		}
	}
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

// TestClientThatTalks checks that what a client sends without end is read only slowly, and that the client still gets
// lines.
func TestClientThatTalks(t *testing.T) {
	s := open(t, Config{Listen: "127.0.0.1:0"})
	next, end := startGraph(t, s, pipeline.Block)
	defer end()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	clients(t, s, 1)
	var said atomic.Int64
	began := time.Now()
	go func() {
		for b := make([]byte, 1<<16); ; {
			n, err := c.Write(b)
			said.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	time.Sleep(2 * time.Second)
	took := time.Since(began)
	buffered := int64(8 << 20) // upper bound for the sockets of both ends
	if most := (int64(took/sayEvery)+2*sayBurst)*4096 + buffered; said.Load() > most {
		t.Errorf("%d bytes were read in %v, want %d at most", said.Load(), took, most)
	}
	next <- []pipeline.Result{{Stage: "finder"}}
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Error(err)
	}
}
