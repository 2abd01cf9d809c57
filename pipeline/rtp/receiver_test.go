package rtp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// source emits frames of a pool at its format's rate.
type source struct {
	format pipeline.Format
	pool   *pipeline.Pool
	frames int
	fill   []*pipeline.Frame
	ready  chan struct{} // closed when the emission may begin
}

func newSource(t testing.TB, f pipeline.Format, frames int) *source {
	t.Helper()
	s := &source{format: f, frames: frames, ready: make(chan struct{})}
	slots := make([]pipeline.Slot, 8)
	for i := range slots {
		slots[i].Bytes = make([]byte, f.Size())
	}
	s.pool = pipeline.NewPool("source", f, slots, nil)
	for n := range 5 {
		s.fill = append(s.fill, testFrame(f, n))
	}
	t.Cleanup(func() {
		if err := s.pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *source) Format() pipeline.Format { return s.format }

func (s *source) Status() pipeline.SourceStatus { return pipeline.SourceStatus{} }

func (s *source) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil
	}
	tick := time.NewTicker(time.Second * time.Duration(s.format.Rate.Den) / time.Duration(s.format.Rate.Num))
	defer tick.Stop()
	for n := 0; s.frames == 0 || n < s.frames; n++ {
		f, err := s.pool.Wait(ctx)
		if err != nil {
			return nil
		}
		copy(f.Bytes, s.fill[n%len(s.fill)].Bytes)
		f.Sequence, f.Times.Captured = uint64(n), time.Now()
		emit(f)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// runGraph runs a graph with one source and the sink until the source ends, and returns the output's books. All of the
// source's slots may wait for the sink, so that it loses no frame where it is slow.
func runGraph(t testing.TB, ctx context.Context, src *source, s pipeline.Sink) pipeline.OutputStats {
	t.Helper()
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: slog.New(slog.DiscardHandler)})
	if err := g.AddSource("source", src); err != nil {
		t.Fatal(err)
	}
	o, err := g.Attach(pipeline.OutputConfig{Name: "rtp", Sink: s, Depth: src.pool.Len()})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Run(ctx); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	return o.Stats()
}

// receive runs a receiver of the sink's SDP until stop is called.
func receive(t testing.TB, s *Sink, onFrame func([]byte, FrameInfo), iface string) (stop func() ReceiverStats) {
	t.Helper()
	text, err := s.SDP()
	if err != nil {
		t.Fatal(err)
	}
	media, err := ParseSDP(text)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReceiver(ReceiverConfig{Media: media[0], Interface: iface, OnFrame: onFrame, Buffer: 2 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return func() ReceiverStats {
		time.Sleep(2 * tick) // what is in the socket
		cancel()
		wg.Wait()
		return r.Stats()
	}
}

func TestLoopbackEveryChecksumMatches(t *testing.T) {
	multicast := func(port int) string { return fmt.Sprintf("239.255.77.%d:%d", port%250+1, port) }
	sourced := func(port int) string { return fmt.Sprintf("232.255.77.%d:%d", port%250+1, port) }
	unicast := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	for name, tt := range map[string]struct {
		p     Payload
		dest  func(int) string
		iface string
	}{
		"raw":       {Raw, unicast, ""},
		"jpeg":      {JPEG, unicast, ""},
		"multicast": {Raw, multicast, "lo"},
		"sourced":   {JPEG, sourced, "lo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testFormat(t, pipeline.UYVY, 640, 480, 50)
			if tt.p == JPEG {
				f = testFormat(t, pipeline.I420, 320, 180, 25) // encoding takes its time under the race detector
			}
			src := newSource(t, f, 40)
			s := testSink(t, Config{
				Payload: tt.p, Destinations: []string{tt.dest(rtptest.EvenPorts(t, 1)[0])}, Interface: tt.iface, TTL: 1, Checksum: true,
			}, f)
			var got, wrong int
			stop := receive(t, s, func(b []byte, _ FrameInfo) {
				if tt.p == Raw && !bytes.Equal(b, src.fill[got%len(src.fill)].Bytes) {
					wrong++
				}
				got++
			}, tt.iface)
			close(src.ready)
			counts := runGraph(t, context.Background(), src, s)
			st := stop()
			if st.Frames != 40 || st.Matched != 40 || st.Lost+st.Damaged+st.Malformed+st.Mismatched+st.Unverified+st.Foreign != 0 || st.Byes != 1 {
				t.Errorf("received %+v\nsent %+v", st, counts)
			}
			if got != 40 || wrong != 0 {
				t.Errorf("%d frames, %d wrong", got, wrong)
			}
			if st.Latency.Count < 38 || st.Latency.P50 <= 0 || st.Latency.Max > 5*time.Second {
				t.Errorf("latency %+v", st.Latency)
			}
		})
	}
}

// TestReportsComeBack lets sender and receiver talk for long enough that both have reported.
func TestReportsComeBack(t *testing.T) {
	t.Parallel()
	f := testFormat(t, pipeline.UYVY, 320, 240, 30)
	src := newSource(t, f, 40)
	s := testSink(t, Config{Destinations: []string{fmt.Sprintf("127.0.0.1:%d", rtptest.EvenPorts(t, 1)[0])}}, f)
	stop := receive(t, s, nil, "")
	var reports []Report
	done := make(chan struct{})
	go func() {
		defer close(done)
		for end := time.Now().Add(time.Minute); time.Now().Before(end) && len(reports) == 0; time.Sleep(10 * time.Millisecond) {
			if d := s.Stats().Destinations; len(d) == 1 {
				reports = d[0].Reports
			}
		}
	}()
	close(src.ready)
	runGraph(t, context.Background(), src, s)
	<-done
	st := stop()
	if len(reports) != 1 || reports[0].FractionLost != 0 || reports[0].Receiver == 0 || reports[0].Highest == 0 {
		t.Errorf("reports %+v", reports)
	}
	if st.Frames != 40 || st.Matched != 0 || st.Unverified != 39 || st.Latency.Count == 0 {
		t.Errorf("without checksums: %+v", st)
	}
}

func TestTheBooksAddUp(t *testing.T) {
	f := testFormat(t, pipeline.UYVY, 320, 240, 100)
	src := newSource(t, f, 20)
	s := testSink(t, Config{Destinations: []string{"127.0.0.1:5998"}}, f) // nobody listens
	close(src.ready)
	st := runGraph(t, context.Background(), src, s)
	if st.Captured != 20 || st.Delivered+st.Drops() != 20 || st.Dropped["rtp/sink"] != 0 {
		t.Errorf("%+v", st)
	}
	if err := s.Add("127.0.0.1:5996"); !errors.Is(err, ErrDestination) {
		t.Errorf("added to a sink that has ended: %v", err)
	}
}

func TestASinkEndsWithItsContext(t *testing.T) {
	f := testFormat(t, pipeline.I420, 320, 240, 100)
	src := newSource(t, f, 0)
	c, addr := listener(t)
	s := testSink(t, Config{Payload: JPEG, Destinations: []string{addr}}, f)
	close(src.ready)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		defer cancel()
		for b, frames := make([]byte, 10000), 0; frames < 2; { // when the second one ends, the first was delivered
			n, err := c.Read(b)
			if err != nil {
				return
			}
			if n > 1 && b[1]&0x80 != 0 { // the marker bit
				frames++
			}
		}
	}()
	st := runGraph(t, ctx, src, s)
	if st.Delivered == 0 || st.Captured != st.Delivered+st.Drops() {
		t.Errorf("%+v", st)
	}
}

// TestReceiverTakesWhatHasCome: what waits in its sockets when it is to end was received in time.
func TestReceiverTakesWhatHasCome(t *testing.T) {
	port := rtptest.EvenPorts(t, 1)[0]
	r, err := NewReceiver(ReceiverConfig{Media: Media{Address: netip.MustParseAddr("127.0.0.1"), Port: port, RTCPPort: port + 1, Payload: JPEG, PayloadType: 26}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("no RTP at all")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if st := r.Stats(); st.Malformed != 1 {
		t.Errorf("%+v", st)
	}
}

// TestReceiverAwaitsTheLastChecksum: it follows its frame, and the end may come between them.
func TestReceiverAwaitsTheLastChecksum(t *testing.T) {
	for try := 1; ; try++ {
		st := endBetween(t)
		if st.Frames == 1 && st.Matched == 1 {
			return
		}
		if try == 5 { // a machine that stood still at just that time is none
			t.Fatalf("%+v", st)
		}
	}
}

// endBetween is what a receiver counts that is to end when a frame has come, 5 ms before its checksum does.
func endBetween(t *testing.T) ReceiverStats {
	port := rtptest.EvenPorts(t, 1)[0]
	x := newFeed(t, JPEG, 1)
	x.media.Address, x.media.Port, x.media.RTCPPort, x.media.Checksum = netip.MustParseAddr("127.0.0.1"), port, port+1, true
	send := func(port int, b []byte) {
		c, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_, err = c.Write(b)
		}
		if err != nil {
			t.Error(err)
			return
		}
		c.Close()
	}
	var checksum []byte
	sent := make(chan struct{})
	r, err := NewReceiver(ReceiverConfig{Media: x.media, Logger: slog.New(slog.DiscardHandler), OnFrame: func([]byte, FrameInfo) {
		time.AfterFunc(5*time.Millisecond, func() { send(port+1, checksum); close(sent) })
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range packets(t, x.sink, x.frames[0]) {
		send(port, b)
	}
	c := x.sink.sender.control
	checksum = c.checksum(c.report(x.now, 0, 0), x.sink.trains[0])
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	st := r.Stats()
	if st.Frames > 0 {
		<-sent
	}
	return st
}

func TestReceiverErrors(t *testing.T) {
	port := rtptest.EvenPorts(t, 1)[0]
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port + 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	media := func(sdp string) Media {
		m, err := ParseSDP([]byte(sdp))
		if err != nil {
			t.Fatal(err)
		}
		return m[0]
	}
	f := testFormat(t, pipeline.UYVY, 64, 48, 30)
	sdp := func(dest string) Media { return media(describe(t, Config{}, f, dest, "127.0.0.1")) }
	for _, tt := range []struct {
		c    ReceiverConfig
		is   error
		want string
	}{
		{ReceiverConfig{Media: sdp(fmt.Sprintf("127.0.0.1:%d", port))}, unix.EADDRINUSE, fmt.Sprintf("port %d is in use", port+1)},
		{ReceiverConfig{Media: sdp("192.0.2.77:5004")}, unix.EADDRNOTAVAIL, "another machine"},
		{ReceiverConfig{Media: sdp("239.1.1.1:5004"), Interface: "none0"}, nil, "interface none0"},
		{ReceiverConfig{Media: Media{}}, pipeline.ErrFormat, "width"},
	} {
		_, err := NewReceiver(tt.c)
		if !errors.Is(err, ErrReceive) || (tt.is != nil && !errors.Is(err, tt.is)) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

// TestOtherSourcesAreNotHeard joins a group for a source that is not us.
func TestOtherSourcesAreNotHeard(t *testing.T) {
	f := testFormat(t, pipeline.UYVY, 64, 48, 100)
	port := rtptest.EvenPorts(t, 1)[0]
	s := testSink(t, Config{Destinations: []string{fmt.Sprintf("232.255.78.%d:%d", port%250+1, port)}, Interface: "lo", TTL: 1}, f)
	text, err := s.SDP()
	if err != nil {
		t.Fatal(err)
	}
	m, err := ParseSDP(text)
	if err != nil || !m[0].Source.IsValid() {
		t.Fatalf("%+v %v", m, err)
	}
	m[0].Source = netip.MustParseAddr("203.0.113.9")
	r, err := NewReceiver(ReceiverConfig{Media: m[0], Interface: "lo", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	send(t, s, testFrame(f, 0))
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.Run(ctx); err != nil {
		t.Error(err)
	}
	if st := r.Stats(); st.Packets != 0 {
		t.Errorf("%+v", st)
	}
}
