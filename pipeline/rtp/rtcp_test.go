package rtp

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline"
)

func TestNTP(t *testing.T) {
	for _, tt := range []struct {
		at  time.Time
		ntp uint64
	}{
		{time.Unix(0, 0), 2208988800 << 32},
		{time.Date(1999, 12, 31, 23, 59, 59, 500_000_000, time.UTC), 0xbc17c1ff_80000000},
		{time.Unix(1, 250_000_000), 2208988801<<32 | 0x40000000},
	} {
		if got := ntpTime(tt.at); got != tt.ntp {
			t.Errorf("%v: %#x, want %#x", tt.at, got, tt.ntp)
		}
		if got := fromNTP(tt.ntp); !got.Equal(tt.at) {
			t.Errorf("%#x: %v, want %v", tt.ntp, got, tt.at)
		}
	}
}

func TestCompounds(t *testing.T) {
	c := newControl(*testStart())
	now := time.Unix(1700000000, 500_000_000)
	tr := &Train{count: 77, info: trainInfo{timestamp: 5, sequence: 1 << 40, captured: now.Add(-time.Second), pixels: 1234, crc: 0xdeadbeef}}
	b := c.checksum(c.report(now, 1<<32+7, 900), tr)
	if len(b)%4 != 0 {
		t.Fatalf("%d bytes", len(b))
	}
	all, err := rtcp.Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := rtcp.CompoundPacket(all[:2]).Validate(); err != nil {
		t.Errorf("RFC 3550 §6.1: %v", err)
	}
	sr := all[0].(*rtcp.SenderReport)
	stamp := mediaClock(now) + testStart().Timestamp
	if sr.SSRC != testStart().SSRC || sr.NTPTime != ntpTime(now) || sr.RTPTime != stamp || sr.PacketCount != 7 || sr.OctetCount != 900 {
		t.Errorf("sender report %v", sr)
	}
	app := all[2].(*rtcp.ApplicationDefined)
	got, err := parseChecksum(app.SubType, app.Name, app.Data)
	want := Checksum{Timestamp: 5, CRC: 0xdeadbeef, Sequence: 1 << 40, Captured: got.Captured, Bytes: 1234, Packets: 77}
	if err != nil || got != want || !got.Captured.Equal(tr.info.captured) || app.SSRC != testStart().SSRC {
		t.Errorf("checksum %+v: %v", got, err)
	}
	all, err = rtcp.Unmarshal(c.bye(c.report(now, 0, 0)))
	if err != nil || len(all) != 3 || all[2].(*rtcp.Goodbye).Sources[0] != testStart().SSRC {
		t.Errorf("bye %v: %v", all, err)
	}
	if n := testing.AllocsPerRun(20, func() { c.checksum(c.report(now, 1, 2), tr) }); n != 0 {
		t.Errorf("%v allocations a report", n)
	}
	for _, bad := range []struct {
		name string
		data []byte
	}{{"TGCX", app.Data}, {"TGCR", app.Data[1:]}, {"TGCR", append(bytes.Clone(app.Data), 0)}} {
		if _, err := parseChecksum(0, bad.name, bad.data); err == nil {
			t.Errorf("accepted %q of %d bytes", bad.name, len(bad.data))
		}
	}
}

// TestRoundTrip is the example of RFC 3550 §6.4.1, figure 2: 6.125 s.
func TestRoundTrip(t *testing.T) {
	now := fromNTP(0xb44db705_20000000 + 0x0000000b_60000000) // middle 32 bits b710:8000
	rr, err := (&rtcp.ReceiverReport{SSRC: 9, Reports: []rtcp.ReceptionReport{{
		SSRC: 1, FractionLost: 64, TotalLost: 0xffffff, LastSequenceNumber: 70000, Jitter: 90,
		LastSenderReport: 0xb7052000, Delay: 0x00054000,
	}, {SSRC: 2}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got := parseReports(rr, 1, now)
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
		d.heardFrom(b, 1, netip.MustParseAddrPort("192.0.2.1:5005"), time.Unix(int64(i), 0))
		d.heardFrom(b, 1, netip.MustParseAddrPort("192.0.2.1:5005"), time.Unix(int64(i), 1))
	}
	if len(d.heard) != maxReports {
		t.Fatalf("%d reports kept", len(d.heard))
	}
	for _, r := range d.heard {
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
	const want = "127.0.0.1:5004: frames 10, cut 2, refused 1, receiver lost 25.0 %, 7 in all, jitter 1.500 ms: nobody listens"
	if d.String() != want {
		t.Errorf("%s\nwant %s", d, want)
	}
	if _, ok := (DestinationStats{}).LastReport(); ok {
		t.Error("a report of nobody")
	}
}

// The counters outlive the sockets: the last line of a run is printed after them.
func TestStatsAfterClose(t *testing.T) {
	_, addr := listener(t)
	f := testFormat(t, pipeline.UYVY, 64, 48, 100)
	s := testSink(t, Config{Destinations: []string{addr}}, f)
	send(t, s, testFrame(f, 0))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if d := s.Stats().Destinations; len(d) != 1 || d[0].Frames != 1 {
		t.Errorf("%v", d)
	}
	if err := s.Remove(addr); !errors.Is(err, ErrDestination) {
		t.Errorf("removed after the end: %v", err)
	}
	if s.sender.Send(s.trains[0]) {
		t.Error("sent after the end")
	}
}
