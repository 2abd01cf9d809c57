// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func describe(t testing.TB, s Stream, f pipeline.Format, dest, origin string) string {
	t.Helper()
	return describePath(t, s, f, Path{From: netip.MustParseAddr(origin), To: netip.MustParseAddrPort(dest)})
}

func describePath(t testing.TB, s Stream, f pipeline.Format, p Path) string {
	t.Helper()
	b, err := Describe(s, f, p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDescriptions(t *testing.T) {
	raw := rtptest.Format(t, pipeline.UYVY, 1920, 1080, 30)
	raw.Rate = pipeline.Rate{Num: 30000, Den: 1001}
	half := rtptest.Format(t, pipeline.I420, 960, 540, 10)
	start := &Start{SSRC: 7}
	for name, tt := range map[string]struct{ got, want string }{
		"raw": {describePath(t, Stream{Start: start}, raw, Path{From: netip.MustParseAddr("192.0.2.9"), To: netip.MustParseAddrPort("239.1.2.3:5004"), TTL: 4}), `v=0
o=- 7 7 IN IP4 192.0.2.9
s=tegracast
t=0 0
m=video 5004 RTP/AVP 96
c=IN IP4 239.1.2.3/4
a=rtpmap:96 raw/90000
a=fmtp:96 sampling=YCbCr-4:2:2; width=1920; height=1080; exactframerate=30000/1001; depth=8; TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; RANGE=NARROW
a=mediaclk:sender
a=recvonly
`},
		"jpeg": {describe(t, Stream{Start: start, Payload: JPEG, Name: "half", Checksum: true}, half, "127.0.0.1:5006", "127.0.0.1"), `v=0
o=- 7 7 IN IP4 127.0.0.1
s=half
t=0 0
m=video 5006 RTP/AVP 26
c=IN IP4 127.0.0.1
a=rtpmap:26 JPEG/90000
a=framesize:26 960-540
a=framerate:10
a=mediaclk:sender
a=x-tegracast-checksum:crc32c
a=recvonly
`},
		"source specific": {describe(t, Stream{Start: start, Payload: JPEG}, half, "[ff35::8000:1]:5006", "2001:db8::1"), `v=0
o=- 7 7 IN IP6 2001:db8::1
s=tegracast
t=0 0
m=video 5006 RTP/AVP 26
c=IN IP6 ff35::8000:1
a=source-filter: incl IN IP6 ff35::8000:1 2001:db8::1
a=rtpmap:26 JPEG/90000
a=framesize:26 960-540
a=framerate:10
a=mediaclk:sender
a=recvonly
`},
	} {
		if got := strings.ReplaceAll(tt.got, "\r\n", "\n"); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, tt.want)
		}
	}
}

// TestClocks checks that this machine's own clock is identified by the MAC address of an interface, and that a PTP
// clock is named only if the kernel's clock is synchronised.
func TestClocks(t *testing.T) {
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 30)
	const ptp = "ptp=IEEE1588-2008:00-11-22-FF-FE-33-44-55:0"
	rtptest.InNamespace(t, func() {
		rtptest.TransmitOnly(t)
		link, err := exec.Command("ip", "-o", "link", "show", "x").Output()
		if err != nil {
			t.Error(err)
			return
		}
		_, address, _ := strings.Cut(string(link), "link/ether ")
		address, _, _ = strings.Cut(address, " ")
		mac := strings.ToUpper(strings.ReplaceAll(address, ":", "-"))
		own := describe(t, Stream{Start: &Start{Timestamp: 77}, CaptureTime: true}, f, "10.9.0.2:5004", "10.9.0.1")
		for _, want := range []string{"a=ts-refclk:localmac=" + mac, "a=mediaclk:direct=77", "a=extmap:1 " + captureTimeURI} {
			if !strings.Contains(own, want+"\r\n") {
				t.Errorf("no %q in\n%s", want, own)
			}
		}
		tai, synchronised := kernelClock()
		text := describe(t, Stream{Start: &Start{Timestamp: 77}, Clock: ptp}, f, "10.9.0.2:5004", "10.9.0.1")
		want := fmt.Sprintf("a=ts-refclk:%s\r\na=mediaclk:direct=%d\r\n", ptp, uint32(77)-uint32(tai)*90000)
		if strings.Contains(text, want) != synchronised {
			t.Errorf("the kernel's clock is synchronised: %v\n%s", synchronised, text)
		}
		tai37 := uint32(37 * 90000)
		for _, r := range []pipeline.ClockReport{
			{PTP: true, Ahead: 37 * time.Second, State: pipeline.ClockLocked},
			{PTP: true, Ahead: 37 * time.Second, State: pipeline.ClockSlewing},
			{PTP: true, Ahead: 37 * time.Second, State: pipeline.ClockHoldover},
			{State: pipeline.ClockWaiting},
		} {
			s := Stream{Start: &Start{Timestamp: 77}, Clock: ptp, Reference: func() *pipeline.ClockReport { return &r }}
			text := describe(t, s, f, "10.9.0.2:5004", "10.9.0.1")
			locked := fmt.Sprintf("a=ts-refclk:%s\r\na=mediaclk:direct=%d\r\n", ptp, uint32(77)-tai37)
			if own := "a=ts-refclk:localmac=" + mac + "\r\na=mediaclk:direct=77\r\n"; strings.Contains(text, locked) != (r.State == pipeline.ClockLocked) ||
				strings.Contains(text, own) == (r.State == pipeline.ClockLocked) {
				t.Errorf("%+v:\n%s", r, text)
			}
		}
	})
}

func TestParseWhatWeDescribe(t *testing.T) {
	raw, half := rtptest.Format(t, pipeline.UYVY, 640, 480, 30), rtptest.Format(t, pipeline.I420, 960, 540, 10)
	for _, tt := range []struct {
		text string
		want Media
	}{
		{describe(t, Stream{Checksum: true}, raw, "127.0.0.1:5004", "127.0.0.1"), Media{
			Checksum: true, Payload: Raw, PayloadType: 96, Address: netip.MustParseAddr("127.0.0.1"), Port: 5004, RTCPPort: 5005,
			Pixel: pipeline.UYVY, Width: 640, Height: 480, Rate: pipeline.Rate{Num: 30, Den: 1},
		}},
		{describe(t, Stream{Payload: JPEG}, half, "232.1.1.1:6000", "192.0.2.1"), Media{
			Payload: JPEG, PayloadType: 26, Address: netip.MustParseAddr("232.1.1.1"), Port: 6000, RTCPPort: 6001,
			Source: netip.MustParseAddr("192.0.2.1"), Width: 960, Height: 540, Rate: pipeline.Rate{Num: 10, Den: 1},
		}},
	} {
		got, err := ParseSDP([]byte(tt.text))
		if err != nil || len(got) != 1 || got[0] != tt.want {
			t.Errorf("%+v, %v\nwant %+v", got, err, tt.want)
		}
	}
}

const goodSDP = "v=0\no=- 1 1 IN IP4 192.0.2.1\ns=x\nt=0 0\nm=audio 4000 RTP/AVP 0\nc=IN IP4 192.0.2.2\n" +
	"m=video 5004 RTP/AVP 112\nc=IN IP4 192.0.2.2\na=rtpmap:112 raw/90000\n" +
	"a=fmtp:112 sampling=YCbCr-4:2:2; width=64; height=48; depth=8; exactframerate=25\na=rtcp:7001\n"

func TestForeignDescriptions(t *testing.T) {
	got, err := ParseSDP([]byte(goodSDP))
	if err != nil || len(got) != 1 || got[0].PayloadType != 112 || got[0].RTCPPort != 7001 {
		t.Fatalf("%+v %v", got, err)
	}
	for _, tt := range []struct {
		old, new string
		port     int
		mux      bool
	}{{"5004 RTP/AVP", "5004 RTP/AVPF", 7001, false}, {"a=rtcp:7001\n", "a=rtcp:7001\na=rtcp-mux\n", 5004, true}} {
		got, err := ParseSDP([]byte(strings.Replace(goodSDP, tt.old, tt.new, 1)))
		if err != nil || got[0].RTCPPort != tt.port || got[0].Mux != tt.mux {
			t.Errorf("%s: %+v %v", tt.new, got, err)
		}
	}
	static := "v=0\no=- 1 1 IN IP4 192.0.2.1\ns=x\nc=IN IP4 192.0.2.3\nt=0 0\nm=video 5004 RTP/AVP 26\na=framerate:29.97\n"
	got, err = ParseSDP([]byte(static))
	if err != nil || got[0].Payload != JPEG || got[0].Address.String() != "192.0.2.3" || got[0].Rate != (pipeline.Rate{Num: 2997, Den: 100}) {
		t.Fatalf("%+v %v", got, err)
	}
}

func TestSDPErrorsNameTheLine(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{"v=0", "hello", "line 1"},
		{goodSDP, "", "line 1"},
		{"o=- 1 1 IN IP4 192.0.2.1", "o=-", "line 2"},
		{"t=0 0\n", "t=0 0\nnonsense\n", "line 5"},
		{"m=video 5004", "m=video x", "line 7"},
		{"m=video 5004", "m=video 0", "line 7: port 0"},
		{"5004 RTP/AVP", "5004 RTP/SAVP", "line 7: protocol \"RTP/SAVP\""},
		{"RTP/AVP 112\n", "RTP/AVP 300\n", "line 7: payload type"},
		{"RTP/AVP 112\nc=IN IP4 192.0.2.2", "RTP/AVP 112\nc=IN IP4 cam.example", "line 8: address"},
		{"RTP/AVP 112\nc=IN IP4 192.0.2.2\n", "RTP/AVP 112\n", "line 7: no c= line"},
		{"a=rtpmap:112 raw/90000", "a=rtpmap:112 H265/90000", "line 9: encoding \"H265/90000\""},
		{"a=rtpmap:112 raw/90000", "a=tool:x", "line 7: payload type 112 has no a=rtpmap"},
		{"YCbCr-4:2:2", "RGBA", "line 10: sampling"},
		{"depth=8", "depth=12", "line 10: sampling"},
		{"depth=8", "depth=8; interlace", "line 10: interlace"},
		{"width=64", "width=65", "line 10: impossible format"},
		{"width=64", "width=-1", "line 10: width"},
		{"exactframerate=25", "exactframerate=25/0", "line 10: frame rate"},
		{"a=rtcp:7001", "a=rtcp:0", "line 11: port"},
		{"a=rtcp:7001", "a=source-filter: excl IN IP4 * 192.0.2.1", "line 11: source filter"},
		{"a=rtcp:7001", "a=source-filter: incl IN IP4 * ::1", "line 11: source"},
		{"m=video", "m=text", "no m=video line"},
	} {
		_, err := ParseSDP([]byte(strings.Replace(goodSDP, tt.old, tt.new, 1)))
		if !errors.Is(err, ErrSDP) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.new, err, tt.want)
		}
	}
	for _, size := range []string{"0-48", "4000-3000", "12", "-"} {
		text := "v=0\no=- 1 1 IN IP4 192.0.2.1\ns=x\nc=IN IP4 192.0.2.3\nt=0 0\nm=video 5004 RTP/AVP 26\na=framesize:26 " + size + "\n"
		if _, err := ParseSDP([]byte(text)); !errors.Is(err, ErrSDP) || !strings.Contains(err.Error(), "line 7") {
			t.Errorf("frame size %s: %v", size, err)
		}
	}
	long := goodSDP + strings.Repeat("a=\n", 1000) + "a=x\n?\n" + strings.Repeat("a=y\n", 5000)
	if _, err := ParseSDP([]byte(long)); !errors.Is(err, ErrSDP) || !strings.Contains(err.Error(), "line 1013: \"?\"") {
		t.Errorf("a mistake among many lines: %v", err)
	}
	if _, err := ParseSDP(make([]byte, maxSDP+1)); !errors.Is(err, ErrSDP) {
		t.Errorf("too long: %v", err)
	}
}

func FuzzSDP(f *testing.F) {
	f.Add([]byte(goodSDP))
	f.Add([]byte(describe(f, Stream{Payload: JPEG}, rtptest.Format(f, pipeline.I420, 960, 540, 10), "232.1.1.1:6000", "192.0.2.1")))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := ParseSDP(b)
		if err != nil {
			if !errors.Is(err, ErrSDP) {
				t.Fatal(err)
			}
			return
		}
		for _, m := range all {
			if !m.Address.IsValid() || m.Port < 1 || m.RTCPPort < 1 || m.RTCPPort > 65535 || m.PayloadType > 127 || m.Rate.Num < 0 {
				t.Fatalf("accepted %+v", m)
			}
			if _, err := pipeline.NewFormat(pipeline.UYVY, m.Width, m.Height, m.Rate); m.Payload == Raw && err != nil {
				t.Fatalf("accepted %+v", m)
			}
		}
	})
}

// TestSourceSpecific checks addresses at the bounds of the ranges.
func TestSourceSpecific(t *testing.T) {
	for addr, want := range map[string]bool{
		"232.0.0.0": true, "232.255.255.255": true, "231.255.255.255": false, "233.0.0.0": false,
		"ff35::8000:1": true, "ff3e:0:1::1": true, "ff3e:30:2001:db8::1": false, "ff3e:40::1": false, "ff15::1": false,
	} {
		if got := sourceSpecific(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}
