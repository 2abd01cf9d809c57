// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/report"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// resultsFeed returns a feed whose nth frame has n results with n regions each.
func resultsFeed(t testing.TB, frames int) *feed {
	t.Helper()
	x := newFeedOf(t, rtp.Results, rtptest.Format(t, pipeline.I420, 16, 8, 30), frames)
	for n, f := range x.frames {
		for range n {
			f.Results = append(f.Results, pipeline.Result{Stage: "model", Regions: make([]pipeline.Region, n)})
		}
	}
	return x
}

// TestResultsAreReceived checks that results come whole, in any order of their packets, and are counted.
func TestResultsAreReceived(t *testing.T) {
	for _, change := range []func([][]byte) [][]byte{nil, shuffle} {
		x := resultsFeed(t, 30)
		results, regions := uint64(0), uint64(0)
		for n := range x.frames {
			if x.send(n, change); n > 0 {
				results++
			}
			regions += uint64(n * n)
		}
		x.expect(Stats{Frames: 30, Matched: 30, Results: results, Regions: regions, Reordered: x.s.stats.Reordered})
		for n, text := range x.got {
			var r report.Report
			if err := json.Unmarshal(text, &r); err != nil || r.Frame != x.frames[n].Sequence || len(r.Results) != n {
				t.Errorf("text %d: %v, %.100s", n, err, text)
			}
		}
	}
}

// TestResultsWithoutAPart checks that results of which a packet is missing do not count.
func TestResultsWithoutAPart(t *testing.T) {
	x := resultsFeed(t, 20)
	for n := range x.frames {
		x.send(n, func(wire [][]byte) [][]byte {
			if n == 15 {
				return slices.Delete(wire, 1, 2)
			}
			return wire
		})
	}
	if x.s.finish(); x.s.stats.Frames != 19 || x.s.stats.Damaged != 1 || x.s.stats.Results != 18 || x.s.snapshot().Lost != 1 {
		t.Errorf("%+v", x.s.snapshot())
	}
}

// TestResultsThatAreMalformed checks that parts that do not fit together, and texts that are no JSON, are counted.
func TestResultsThatAreMalformed(t *testing.T) {
	for name, change := range map[string]func(b []byte) []byte{
		"no text":           func(b []byte) []byte { return b[:16] },
		"cut offset":        func(b []byte) []byte { return b[:14] },
		"beyond the limit":  func(b []byte) []byte { b[13] = 4; b[15] = 1; return b },
		"far beyond":        func(b []byte) []byte { b[12] = 0xff; return b },
		"after the end":     func(b []byte) []byte { b[13] = 1; return b },
		"a second end":      func(b []byte) []byte { b[1] |= 0x80; return b },
		"JSON of something": func(b []byte) []byte { copy(b[16:], "[1, 2, 3"); return b },
	} {
		x := resultsFeed(t, 20)
		wire := packets(t, x.sink, x.frames[19])
		if len(wire) < 3 {
			t.Fatal("too few packets")
		}
		x.s.packet(wire[len(wire)-1], x.now) // tells where the end is
		wire[0] = change(wire[0])
		for _, b := range wire[:len(wire)-1] {
			x.s.packet(b, x.now)
		}
		if st := x.s.snapshot(); st.Malformed != 1 || st.Regions != 0 {
			t.Errorf("%s: %+v", name, st)
		}
	}
}

func FuzzResultsPackets(f *testing.F) {
	fuzzStream(f, rtp.Results, rtptest.Format(f, pipeline.I420, 16, 8, 30))
}

// FuzzResultsText checks that any text can be counted.
func FuzzResultsText(f *testing.F) {
	for _, text := range []string{`{"results":[{"regions":[{},{}]}]}`, `{"results":null}`, "[]", strings.Repeat(`{"results":`, 99)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := testStream(t, rtp.Media{Payload: rtp.Results}, nil)
		s.count(text)
		if s.stats.Malformed+s.stats.Results > 1 || int(s.stats.Regions) > len(text) {
			t.Fatalf("%+v", s.stats)
		}
	})
}
