// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// FuzzReport compares a report with the output of encoding/json, and decodes it with encoding/json.
func FuzzReport(f *testing.F) {
	for i, text := range []string{"", "detector", "a\"b\\<>&\x00\x7f\n\u2028é\xff", "\xed\xa0\x80"} {
		f.Add(uint64(i), uint64(i), text, text, int64(i), int64(i)*1e9, uint64(3*i))
	}
	for _, x := range []float64{0, math.Copysign(0, -1), 1, -1.5, 1e-6, 9.99e-7, 1e-9, -1e-10, 1e20, 1e21, 1.5e300, 5e-324, math.NaN(), math.Inf(1), math.Inf(-1)} {
		f.Add(uint64(5), math.Float64bits(x), "count", "other", int64(-1), int64(1), uint64(17))
	}
	f.Add(uint64(1), uint64(1), "phc:/dev/ptp0", "locked", int64(-17), int64(0), uint64(128|256|4))
	f.Add(uint64(1), uint64(1), "system", "holdover", int64(0), int64(0), uint64(128|2))
	f.Add(uint64(1), uint64(1), "year 10000", "x", int64(253402300800), int64(0), uint64(1))
	f.Fuzz(func(t *testing.T, frame, bits uint64, a, b string, seconds, nanoseconds int64, shape uint64) {
		x, random := math.Float64frombits(bits), rand.New(rand.NewPCG(frame, shape))
		r := Report{Frame: frame, Group: bits * (shape & 1), Captured: time.Unix(seconds, nanoseconds).UTC(), Results: []pipeline.Result{}}
		if shape&1 != 0 {
			r.Captured = r.Captured.In(time.FixedZone("", int(int32(bits))%100000))
		}
		if shape&2 != 0 {
			r.Results = nil
		}
		if shape&128 != 0 {
			r.Clock = &pipeline.ClockReport{Source: a, State: pipeline.ClockState(b), Rate: int(int32(bits)), Steps: frame, Ahead: 5, PTP: true}
			if shape&256 != 0 {
				r.Clock.Offset = new(time.Duration(seconds))
			}
		}
		for range shape >> 2 % 4 {
			one := pipeline.Result{Stage: a, Numbers: map[string]float64{}}
			for i := range random.IntN(4) {
				one.Regions = append(one.Regions, pipeline.Region{
					X: int(seconds), Y: -i, Width: int(bits), Height: i, Label: []string{"", a, b}[random.IntN(3)], Score: []float64{0, x, 0.87}[random.IntN(3)],
				})
				one.Bins = append(one.Bins, random.Uint32()>>random.IntN(32))
			}
			for range random.IntN(20) {
				one.Numbers[[]string{a, b, a + b, b + a, string(rune('a' + random.IntN(26)))}[random.IntN(5)]] = []float64{x, random.NormFloat64()}[random.IntN(2)]
			}
			if shape&64 != 0 {
				one.Tags, one.Began = map[string]string{a: b}, r.Captured
				one.Tensors = []pipeline.Tensor{{Name: b, Type: a, Shape: []int{int(seconds)}, Data: []byte(a)}}
			}
			r.Results = append(r.Results, one)
		}
		want, bad := json.Marshal(r)
		got, err := r.AppendJSON([]byte("before"))
		if (err != nil) != (bad != nil) || err == nil && string(got) != "before"+string(want) {
			t.Fatalf("%v, %v\n%s\n%s", err, bad, got, want)
		}
	})
}

// TestReportHasAllKeys fails when a field is added, as a reminder to add it to AppendJSON too.
func TestReportHasAllKeys(t *testing.T) {
	for _, s := range []struct {
		of   any
		keys int
	}{{Report{}, 5}, {pipeline.Result{}, 8}, {pipeline.Region{}, 6}, {pipeline.ClockReport{}, 7}} {
		if n := reflect.TypeOf(s.of).NumField(); n != s.keys {
			t.Errorf("%T has %d fields", s.of, n)
		}
	}
}
