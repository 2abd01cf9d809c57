// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestRoundTrip uses the example of RFC 3550 §6.4.1, figure 2: 6.125 s.
func TestRoundTrip(t *testing.T) {
	now := rtp.FromNTP(0xb44db705_20000000 + 0x0000000b_60000000) // the middle 32 bits are b710:8000
	rr, err := (&rtcp.ReceiverReport{SSRC: 9, Reports: []rtcp.ReceptionReport{{
		SSRC: 1, FractionLost: 64, TotalLost: 0xffffff, LastSequenceNumber: 70000, Jitter: 90,
		LastSenderReport: 0xb7052000, Delay: 0x00054000,
	}, {SSRC: 2}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var c counters
	if told, asks, err := c.heardFrom(rr, 1, netip.AddrPort{}, now); asks || err != nil || len(told) != 1 {
		t.Errorf("a report asks for a key frame: %v; %d reports", asks, len(told))
	}
	got := c.heard
	if len(got) != 1 {
		t.Fatalf("%d reports about the stream, want 1", len(got))
	}
	r := got[0]
	if d := r.RoundTrip - 6125*time.Millisecond; d < -20*time.Microsecond || d > 20*time.Microsecond {
		t.Errorf("round trip %v, want 6.125s", r.RoundTrip)
	}
	if r.Receiver != 9 || r.FractionLost != 0.25 || r.Lost != -1 || r.Highest != 70000 || r.Jitter != time.Millisecond {
		t.Errorf("report %+v", r)
	}
}

func TestReportsAreBounded(t *testing.T) {
	var d destination
	for i := range 3 * maxReports {
		b, err := (&rtcp.ReceiverReport{SSRC: uint32(i), Reports: []rtcp.ReceptionReport{{SSRC: 1}}}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		_, _, _ = d.counters.heardFrom(b, 1, netip.MustParseAddrPort("192.0.2.1:5005"), time.Unix(int64(i), 0))
		_, _, _ = d.counters.heardFrom(b, 1, netip.MustParseAddrPort("192.0.2.1:5005"), time.Unix(int64(i), 1))
	}
	if len(d.counters.heard) != maxReports {
		t.Fatalf("%d reports kept", len(d.counters.heard))
	}
	for _, r := range d.counters.heard {
		if r.Receiver < 2*maxReports {
			t.Errorf("the report of %d was kept, it is older than others", r.Receiver)
		}
	}
}

func TestDestinationInOneLine(t *testing.T) {
	at := time.Unix(1700000000, 0)
	d := DestinationStats{Address: "127.0.0.1:5004", Frames: 10, Cut: 2, Refused: 1, LastError: "nobody listens", Reports: []Report{
		{At: at.Add(time.Second), FractionLost: 0.25, Lost: 7, Jitter: 1500 * time.Microsecond}, {At: at, Lost: 6},
	}}
	const want = "127.0.0.1:5004: frames sent 10, incomplete 2, packets refused 1, receiver lost 25.0 %, 7 in all, jitter 1.500 ms: nobody listens"
	if d.String() != want {
		t.Errorf("%s\nwant %s", d, want)
	}
	if _, ok := (DestinationStats{}).LastReport(); ok {
		t.Error("a report of nobody")
	}
}

// The counters remain available after the sockets are closed, because the last line of a run is printed after that.
func TestStatsAfterClose(t *testing.T) {
	_, addr := listener(t)
	f := rtptest.Format(t, pipeline.UYVY, 64, 48, 100)
	s := testSink(t, Config{Destinations: []string{addr}}, f)
	send(t, s, rtptest.Frame(f, 0))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if d := s.Stats().Destinations; len(d) != 1 || d[0].Frames != 1 {
		t.Errorf("%v", d)
	}
	if err := s.Remove(addr); !errors.Is(err, ErrDestination) {
		t.Errorf("removed after the end: %v", err)
	}
	if sendTrain(s, s.trains[0]) {
		t.Error("sent after the end")
	}
}

// FuzzReports checks that the parser handles any bytes from receivers.
func FuzzReports(f *testing.F) {
	now := time.Unix(1700000000, 0)
	c := rtp.NewCompounds(*testStart())
	f.Add(c.Bye(c.SenderReport(now, 1, 2)))
	rr, err := (&rtcp.ReceiverReport{SSRC: 9, Reports: []rtcp.ReceptionReport{{SSRC: testStart().SSRC, Jitter: 90}}}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(rr)
	pli, err := (&rtcp.PictureLossIndication{SenderSSRC: 9, MediaSSRC: testStart().SSRC}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pli)
	f.Fuzz(func(_ *testing.T, b []byte) {
		var c counters
		_, _, _ = c.heardFrom(b, testStart().SSRC, netip.AddrPort{}, now)
		uses(b, testStart().SSRC)
	})
}
