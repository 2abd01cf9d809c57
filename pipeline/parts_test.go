// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHistogramAgainstSortedValues(t *testing.T) {
	var h Histogram
	rng := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	for range 20000 {
		d := time.Duration(rng.ExpFloat64() * 3e6)
		all = append(all, d)
		h.Observe(d)
	}
	slices.Sort(all)
	p := h.Percentiles()
	if p.Count != 20000 || p.Max != all[len(all)-1] {
		t.Errorf("count %d, max %v, want 20000 and %v", p.Count, p.Max, all[len(all)-1])
	}
	for _, c := range []struct {
		q   float64
		got time.Duration
	}{{.5, p.P50}, {.99, p.P99}, {.999, p.P999}} {
		want := all[int(c.q*float64(len(all)))]
		if c.got < want || c.got > want+want/16+1 {
			t.Errorf("percentile %v is %v, want %v to 1/16 more", c.q, c.got, want)
		}
	}
	for ns := uint64(0); ns < 1<<20; ns += 1 + ns/97 {
		if b := bucketOf(ns); int64(ns) > upperBound(b) || (b > 0 && int64(ns) <= upperBound(b-1)) {
			t.Fatalf("%d ns fell into bucket %d, which ends at %d", ns, b, upperBound(b))
		}
	}
	h.Observe(-time.Second)
	h.Observe(1 << 62)
}

func TestSignedHistogramAgainstSortedValues(t *testing.T) {
	for want := -time.Duration(subBuckets) + 1; want < subBuckets; want++ { // these values have one bucket each
		var h SignedHistogram
		h.Observe(want)
		if p := h.Percentiles(); p != (Percentiles{1, want, want, want, want}) {
			t.Errorf("of %v: %+v", want, p)
		}
	}
	for name, shift := range map[string]time.Duration{"negative": -time.Second, "both": -3 * time.Millisecond, "positive": 0, "none": 0} {
		var h SignedHistogram
		rng := rand.New(rand.NewPCG(1, 2))
		var all []time.Duration
		for range 20000 {
			d := min(time.Duration(rng.ExpFloat64()*3e6), time.Second/2) + shift
			all = append(all, d)
			if name != "none" {
				h.Observe(d)
			}
		}
		p := h.Percentiles()
		if name == "none" {
			if p != (Percentiles{}) {
				t.Errorf("of nothing: %+v", p)
			}
			continue
		}
		slices.Sort(all)
		for q, got := range map[float64]time.Duration{.5: p.P50, .99: p.P99, .999: p.P999, 1: p.Max} {
			want := all[min(int(q*float64(len(all))), len(all)-1)]
			if got < want || got > want+want.Abs()/16+1 {
				t.Errorf("%s: percentile %v is %v, want %v to 1/16 more", name, q, got, want)
			}
		}
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct {
		f    Format
		size int
		says string // part of the error; empty if the format is possible
	}{
		{Format{Pixel: UYVY, Width: 1920, Height: 1080, Stride: 3840}, 4147200, ""},
		{Format{Pixel: I420, Width: 960, Height: 540, Stride: 960}, 777600, ""},
		{Format{Pixel: RGGB10, Width: 3, Height: 3, Stride: 8}, 24, ""},
		{Format{Pixel: UYVY, Width: 1919, Height: 1080, Stride: 3840}, 0, "even width"},
		{Format{Pixel: RGB24, Width: 5, Height: 3, Stride: 15}, 45, ""},
		{Format{Pixel: NV12, Width: 4, Height: 4, Stride: 5}, 30, ""},
		{Format{Pixel: Grey, Width: 3, Height: 5, Stride: 3}, 15, ""},
		{Format{Pixel: BGGR10P, Width: 8, Height: 2, Stride: 10}, 20, ""},
		{Format{Pixel: BGGR10P, Width: 6, Height: 2, Stride: 10}, 0, "multiple of 4"},
		{Format{Pixel: Mono12P, Width: 4, Height: 2, Stride: 6}, 12, ""},
		{Format{Pixel: UYVP, Width: 1920, Height: 1080, Stride: 4800, PacketPitch: 1240, HeaderGap: 40}, 1080 * 4 * 1240, ""},
		{Format{Pixel: UYVP, Width: 1920, Height: 1080, Stride: 4800, PacketPitch: 1624, HeaderGap: 24}, 1080 * 3 * 1624, ""},
		{Format{Pixel: UYVP, Width: 1920, Height: 1080, Stride: 4800, PacketPitch: 1220, HeaderGap: 24}, 0, "no whole number of packets"},
		{Format{Pixel: UYVY, Width: 4, Height: 2, Stride: 8, PacketPitch: 20, HeaderGap: 20}, 0, "packets of 20 bytes with 20 of headers"},
		{Format{Pixel: UYVY, Width: 4, Height: 2, Stride: 8, PacketPitch: 20, HeaderGap: -1}, 0, "with -1 of headers"},
		{Format{Pixel: I420, Width: 4, Height: 2, Stride: 4, PacketPitch: 20, HeaderGap: 4}, 0, "planes"},
		{Format{Pixel: NV12, Width: 4, Height: 3, Stride: 4}, 0, "even height"},
		{Format{Pixel: I420, Width: 960, Height: 541, Stride: 960}, 0, "even height"},
		{Format{Pixel: UYVY, Width: 1920, Height: 1080, Stride: 1920}, 0, "stride 1920 is less than a line's 3840"},
		{Format{Pixel: UYVY, Width: 0, Height: 1080}, 0, "from 2 to 32768"},
		{Format{Width: 4, Height: 4}, 0, "unknown pixel format"},
		{Format{Pixel: UYVY, Width: 4, Height: 4, Stride: 8, Rate: Rate{30, 0}}, 0, "rate 30/0"},
	} {
		err := c.f.Validate()
		switch {
		case c.says == "" && (err != nil || c.f.Size() != c.size):
			t.Errorf("%v: %v, size %d, want %d", c.f, err, c.f.Size(), c.size)
		case c.says != "" && (!errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%v: %v, want ErrFormat with %q", c.f, err, c.says)
		}
	}
}

func TestQueuePolicies(t *testing.T) {
	f := uyvy()
	for _, c := range []struct {
		policy Policy
		want   []uint64
	}{{Latest, []uint64{3, 4, 5}}, {Block, []uint64{0, 1, 2}}} {
		p := NewPool("p", f, make([]Slot, 6), nil)
		a := NewAccount("q", nil)
		q := NewQueue(3, c.policy, a)
		for i := range 6 {
			fr := p.Get()
			fr.Sequence = uint64(i)
			q.put(fr)
		}
		q.close()
		var got []uint64
		for {
			fr, err := q.Next(t.Context())
			if err != nil {
				if !errors.Is(err, ErrDetached) {
					t.Error(err)
				}
				break
			}
			got = append(got, fr.Sequence)
			q.Done(fr)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s kept %v, want %v", c.policy, got, c.want)
		}
		if n := a.Counts(); n.Offered != 6 || n.Delivered != 3 || n.Dropped["queue"] != 3 {
			t.Errorf("%+v", n)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A consumer that is late continues with the newest frame, unless the queue's policy is Block. The skipped frames are
// counted.
func TestALateConsumerTakesTheNewestFrame(t *testing.T) {
	for policy, want := range map[Policy]uint64{Latest: 3, Block: 0} {
		p, a := NewPool("p", uyvy(), make([]Slot, 4), nil), NewAccount("q", nil)
		q := NewQueue(4, policy, a)
		for i := range 4 {
			f := p.Get()
			f.Sequence = uint64(i)
			q.put(f)
		}
		q.DropLate(p.format.Height)
		f, err := q.Next(t.Context())
		if err != nil || f.Sequence != want {
			t.Fatalf("%s: frame %v, %v, want frame %d", policy, f, err, want)
		}
		q.Done(f)
		if n := a.Counts(); n.Dropped["late"] != want || q.Len() != 3-int(want) {
			t.Errorf("%s: %+v, %d wait", policy, n, q.Len())
		}
		q.DropLate(p.format.Height - 1) // these frames are complete
		if got := q.Len(); got != 3-int(want) {
			t.Errorf("%s: %d wait", policy, got)
		}
		q.drain()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReleaseTooOftenPanics(t *testing.T) {
	p := NewPool("p", uyvy(), make([]Slot, 1), nil)
	f := p.Get()
	if p.Get() != nil {
		t.Error("a pool of one slot gave two")
	}
	f.Retain()
	f.Release()
	f.Release()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f.Release()
}

func TestRecorderKeepsTheLastEvents(t *testing.T) {
	r := NewRecorder(3)
	for i := range uint64(5) {
		r.Record("raw", EventDrop, i, uint64(DropRate))
	}
	var b bytes.Buffer
	if err := r.Dump(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 || !strings.HasSuffix(lines[0], "dropped   seq=2 rate") || !strings.HasSuffix(lines[2], "seq=4 rate") {
		t.Errorf("dump:\n%s", b.String())
	}
}

func TestRateKeepsTheAverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct {
		source, want Rate
		frames       int
	}{{Rate{30, 1}, Rate{10, 1}, 1000}, {Rate{30, 1}, Rate{25, 1}, 2500}, {Rate{30000, 1001}, Rate{30000, 1001}, 3000}, {Rate{30, 1}, Rate{60, 1}, 3000}} {
		l := newLimiter(c.source, c.want)
		start, n := time.Unix(1e9, 0), 0
		for i := range 3000 {
			jitter := time.Duration(rng.IntN(4e6)) - 2e6
			if l.due(&Frame{Times: Times{Captured: start.Add(time.Duration(i)*c.source.Period() + jitter)}}) {
				n++
			}
		}
		if n < c.frames-c.frames/100 || n > c.frames {
			t.Errorf("%v to %v: %d of 3000 frames, want %d", c.source, c.want, n, c.frames)
		}
	}
	l := newLimiter(Rate{30, 1}, Rate{10, 1})
	l.due(&Frame{Times: Times{Captured: time.Unix(1e9, 0)}})
	if !l.due(&Frame{Times: Times{Captured: time.Unix(1e6, 0)}}) {
		t.Error("after the clock was set back nothing comes through")
	}
}

func TestResultsEncode(t *testing.T) {
	b, err := json.Marshal(Result{Stage: "motion", Regions: []Region{{X: 1, Y: 2, Width: 3, Height: 4}}})
	if want := `{"stage":"motion","regions":[{"x":1,"y":2,"width":3,"height":4}]}`; err != nil || string(b) != want {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
}

// TestSamples checks the sensor formats by name.
func TestSamples(t *testing.T) {
	for p, want := range map[PixelFormat]Samples{
		RGGB10: {RGGB, 10, false}, BGGR16: {BGGR, 16, false}, GRBG8: {GRBG, 8, false}, GBRG14: {GBRG, 14, false},
		Mono12: {Mono, 12, false}, GRBG10P: {GRBG, 10, true}, Mono12P: {Mono, 12, true}, Grey: {Mono, 8, false},
	} {
		if q, ok := want.Format(); !ok || q != p {
			t.Errorf("%+v is %v", want, q)
		}
		if s, ok := p.Samples(); !ok || s != want {
			t.Errorf("%s: %v, %v, want %v", p, s, ok, want)
		}
	}
	for _, p := range []PixelFormat{0, UYVY, UYVP, RGB24, I420, NV12} {
		if s, ok := p.Samples(); ok {
			t.Errorf("%s: %v", p, s)
		}
	}
}
