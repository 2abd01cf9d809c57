// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"

	pionrtp "github.com/pion/rtp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/report"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// joined reassembles packets as described in docs/rtp.md, with pion's parser.
func joined(t *testing.T, list [][]byte) (text []byte, timestamp uint32) {
	t.Helper()
	for i, b := range list {
		var p pionrtp.Packet
		if err := p.Unmarshal(b); err != nil {
			t.Fatal(err)
		}
		if i > 0 && p.Timestamp != timestamp {
			t.Fatalf("packet %d: timestamp %d, before %d", i, p.Timestamp, timestamp)
		}
		if off := be.Uint32(p.Payload); int(off) != len(text) || p.PayloadType != 97 || p.Marker != (i == len(list)-1) {
			t.Fatalf("packet %d of %d: offset %d after %d bytes, payload type %d, marker %v", i, len(list), off, len(text), p.PayloadType, p.Marker)
		}
		text, timestamp = append(text, p.Payload[4:]...), p.Timestamp
	}
	return text, timestamp
}

func TestResultsPackets(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 16, 8, 30)
	start := NewStart(12345)
	for _, extension := range []bool{false, true} {
		s := testPacking(t, Stream{Payload: Results, Start: start, MTU: 600, CaptureTime: extension}, f)
		video := testPacking(t, Stream{Start: start, CaptureTime: extension}, rtptest.Format(t, pipeline.UYVY, 16, 8, 30))
		for n, regions := range []int{0, 1, 40, 1000, 3} {
			frame := rtptest.Frame(f, n)
			frame.Results = append(frame.Results, pipeline.Result{Stage: "motion", Regions: make([]pipeline.Region, regions)})
			text, at := joined(t, packets(t, s, frame))
			var r report.Report
			if err := json.Unmarshal(text, &r); err != nil {
				t.Fatal(err)
			}
			if r.Frame != frame.Sequence || !r.Captured.Equal(frame.Times.ExposureStart) || len(r.Results[0].Regions) != regions {
				t.Errorf("%+v", r)
			}
			picture := rtptest.Frame(video.format, n)
			var p pionrtp.Packet
			if err := p.Unmarshal(packets(t, video, picture)[0]); err != nil || p.Timestamp != at {
				t.Errorf("the video's timestamp is %d, the results' %d: %v", p.Timestamp, at, err)
			}
		}
	}
}

func TestResultsThatCannotBeSent(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 16, 8, 30)
	s := testPacking(t, Stream{Payload: Results}, f)
	for name, r := range map[string]pipeline.Result{
		"too long": {Stage: strings.Repeat("x", MaxResults)}, "no number": {Numbers: map[string]float64{"n": math.Inf(1)}},
	} {
		frame := rtptest.Frame(f, 0)
		frame.Results = []pipeline.Result{r}
		if err := s.Packetize(s.train, frame); !errors.Is(err, ErrResults) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResultsBesideVideo(t *testing.T) {
	to, from := netip.MustParseAddrPort("127.0.0.1:5004"), netip.MustParseAddr("127.0.0.1")
	video, err := Describe(Stream{}, rtptest.Format(t, pipeline.UYVY, 640, 480, 30), Path{From: from, To: to})
	if err != nil {
		t.Fatal(err)
	}
	results, err := Describe(Stream{Payload: Results}, rtptest.Format(t, pipeline.I420, 16, 8, 30), Path{From: from, To: netip.MustParseAddrPort("127.0.0.1:5008")})
	if err != nil {
		t.Fatal(err)
	}
	both, err := JoinSDP(video, results)
	if err != nil {
		t.Fatal(err)
	}
	media := "m=application 5008 RTP/AVP 97\r\nc=IN IP4 127.0.0.1\r\na=rtpmap:97 x-tegracast-results/90000\r\n"
	if !strings.HasPrefix(string(both), string(video)) || !strings.Contains(string(both), media) {
		t.Errorf("%s", both)
	}
	list, err := ParseSDP(both)
	if err != nil || len(list) != 2 || list[0].Port != 5004 || list[1].Port != 5008 || list[1].Payload != Results || list[1].PayloadType != 97 {
		t.Errorf("%v %+v", err, list)
	}
	if list, err := ParseSDP(results); err != nil || len(list) != 1 || list[0].Payload != Results {
		t.Errorf("without video: %v %+v", err, list)
	}
	if _, err := ParseSDP(bytes.ReplaceAll(results, []byte(resultsEncoding), []byte("x-other"))); !errors.Is(err, ErrSDP) {
		t.Errorf("another application: %v", err)
	}
	if _, err := JoinSDP(video, []byte("nothing")); !errors.Is(err, ErrSDP) {
		t.Errorf("%v", err)
	}
}
