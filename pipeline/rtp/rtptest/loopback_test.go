// SPDX-License-Identifier: Apache-2.0

package rtptest_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/receive"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

func newSink(t testing.TB, c send.Config, f pipeline.Format) *send.Sink {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	s, err := send.New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// listen runs a receiver for the sink's SDP until stop is called.
func listen(t testing.TB, s *send.Sink, onFrame func([]byte, receive.FrameInfo), iface string) (stop func() receive.Stats) {
	t.Helper()
	text, err := s.SDP()
	if err != nil {
		t.Fatal(err)
	}
	media, err := rtp.ParseSDP(text)
	if err != nil {
		t.Fatal(err)
	}
	r, err := receive.New(receive.Config{Media: media[0], Interface: iface, OnFrame: onFrame, Buffer: 2 << 20, Logger: slog.New(slog.DiscardHandler)})
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
	return func() receive.Stats {
		time.Sleep(100 * time.Millisecond) // for packets in the socket
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
		p     rtp.Payload
		dest  func(int) string
		iface string
	}{
		"raw":       {rtp.Raw, unicast, ""},
		"jpeg":      {rtp.JPEG, unicast, ""},
		"multicast": {rtp.Raw, multicast, "lo"},
		"sourced":   {rtp.JPEG, sourced, "lo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := rtptest.Format(t, pipeline.UYVY, 640, 480, 50)
			if tt.p == rtp.JPEG {
				f = rtptest.Format(t, pipeline.I420, 320, 180, 25) // encoding is slow under the race detector
			}
			c := send.Config{Stream: rtp.Stream{Payload: tt.p, Checksum: true}, Interface: tt.iface, TTL: 1}
			rtptest.Need(t, rtptest.Tries(t, func() error {
				c.Destinations = []string{tt.dest(rtptest.EvenPorts(t, 1)[0])}
				return everyChecksum(t, f, c)
			}))
		})
	}
}

// everyChecksum sends 40 frames. It returns an error if packets are lost; a wrong byte fails the test.
func everyChecksum(t *testing.T, f pipeline.Format, c send.Config) error {
	src, s := rtptest.NewSource(t, f, 40), newSink(t, c, f)
	var got, wrong int
	stop := listen(t, s, func(b []byte, _ receive.FrameInfo) {
		if c.Payload == rtp.Raw && !bytes.Equal(b, src.Fill[got%len(src.Fill)].Bytes) {
			wrong++
		}
		got++
	}, c.Interface)
	close(src.Ready)
	counts := rtptest.Run(t, context.Background(), src, s)
	st := stop()
	if st.Malformed+st.Mismatched+st.Foreign != 0 {
		t.Errorf("received %+v\nsent %+v", st, counts)
	}
	if st.Frames != 40 || st.Matched != 40 || st.Lost+st.Damaged+st.Unverified != 0 || st.Byes != 1 {
		return fmt.Errorf("received %+v\nsent %+v", st, counts)
	}
	if got != 40 || wrong != 0 {
		t.Errorf("%d frames, %d wrong", got, wrong)
	}
	if st.Latency.Count < 38 || st.Latency.P50 <= 0 || st.Latency.Max > time.Minute {
		return fmt.Errorf("latency %+v", st.Latency)
	}
	return nil
}

// TestReportsComeBack lets sender and receiver exchange packets long enough for both to have reported.
func TestReportsComeBack(t *testing.T) {
	t.Parallel()
	rtptest.Need(t, rtptest.Tries(t, func() error { return reportsComeBack(t) }))
}

func reportsComeBack(t *testing.T) error {
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 30)
	src := rtptest.NewSource(t, f, 40)
	s := newSink(t, send.Config{Destinations: []string{fmt.Sprintf("127.0.0.1:%d", rtptest.EvenPorts(t, 1)[0])}}, f)
	stop := listen(t, s, nil, "")
	var reports []send.Report
	done := make(chan struct{})
	go func() {
		defer close(done)
		for end := time.Now().Add(time.Minute); time.Now().Before(end) && len(reports) == 0; time.Sleep(10 * time.Millisecond) {
			if d := s.Stats().Destinations; len(d) == 1 {
				reports = d[0].Reports
			}
		}
	}()
	close(src.Ready)
	rtptest.Run(t, context.Background(), src, s)
	<-done
	st := stop()
	if len(reports) != 1 || reports[0].Receiver == 0 || reports[0].Highest == 0 {
		t.Errorf("reports %+v", reports)
	}
	if st.Matched != 0 || st.Latency.Count == 0 {
		t.Errorf("without checksums: %+v", st)
	}
	if len(reports) == 1 && reports[0].FractionLost != 0 || st.Frames != 40 || st.Unverified != 39 {
		return fmt.Errorf("reports %+v, received %+v", reports, st)
	}
	return nil
}

// TestOtherSourcesAreNotHeard joins a group for a source other than the sender.
func TestOtherSourcesAreNotHeard(t *testing.T) {
	f := rtptest.Format(t, pipeline.UYVY, 64, 48, 100)
	port := rtptest.EvenPorts(t, 1)[0]
	s := newSink(t, send.Config{Destinations: []string{fmt.Sprintf("232.255.78.%d:%d", port%250+1, port)}, Interface: "lo", TTL: 1}, f)
	text, err := s.SDP()
	if err != nil {
		t.Fatal(err)
	}
	m, err := rtp.ParseSDP(text)
	if err != nil || !m[0].Source.IsValid() {
		t.Fatalf("%+v %v", m, err)
	}
	m[0].Source = netip.MustParseAddr("203.0.113.9")
	r, err := receive.New(receive.Config{Media: m[0], Interface: "lo", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	src := rtptest.NewSource(t, f, 1)
	close(src.Ready)
	rtptest.Run(t, t.Context(), src, s)
	if st := s.Stats(); st.Frames != 1 || st.Packets == 0 {
		t.Errorf("sent %+v", st)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.Run(ctx); err != nil {
		t.Error(err)
	}
	if st := r.Stats(); st.Packets != 0 {
		t.Errorf("%+v", st)
	}
}

// BenchmarkLoopback sends 1080p frames, paced for 30 frames a second, to a Receiver in the same process, and reports
// how many of them arrive.
func BenchmarkLoopback(b *testing.B) {
	f := rtptest.Format(b, pipeline.UYVY, 1920, 1080, 30)
	s := newSink(b, send.Config{Destinations: []string{fmt.Sprintf("127.0.0.1:%d", rtptest.EvenPorts(b, 1)[0])}}, f)
	stop := listen(b, s, nil, "")
	src := rtptest.NewSource(b, f, b.N)
	close(src.Ready)
	b.ResetTimer()
	rtptest.Run(b, b.Context(), src, s)
	b.StopTimer()
	sent, st := s.Stats(), stop()
	b.ReportMetric(float64(st.Frames)/float64(b.N), "arrived")
	b.ReportMetric(float64(st.Lost), "lost")
	rtptest.PerPacket(b, int(sent.Packets)/b.N)
}
