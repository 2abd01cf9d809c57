// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/postprocess"
	"github.com/tegracast/tegracast/pipeline/share"
)

// crowd returns a result with regions whose labels have n characters, and a number.
func crowd(regions, n int, character string, leftOut float64) pipeline.Result {
	r := pipeline.Result{Began: time.Unix(1, 2), Ended: time.Unix(3, 4), Numbers: map[string]float64{}}
	if leftOut > 0 {
		r.Numbers[postprocess.LeftOut] = leftOut
	}
	for i := range regions {
		r.Regions = append(r.Regions, pipeline.Region{
			X: i % 60, Y: i % 40, Width: 1 + i%3, Height: 1 + i%5, Label: strings.Repeat(character, n), Score: float64(float32(1 - float64(i)/1000)),
		})
	}
	return r
}

// size returns how many bytes of JSON share counts.
func size(t *testing.T, r pipeline.Result) int {
	t.Helper()
	r.Began, r.Ended = time.Time{}, time.Time{}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

// TestTheLowestRegionsAreLeftOut checks that a result is as it was if it fits, and otherwise has as many regions as fit.
func TestTheLowestRegionsAreLeftOut(t *testing.T) {
	for _, character := range []string{"x", "<", "ä", "\x00"} { // some have six bytes in JSON
		for _, n := range []int{0, 1, 20, 42, 128, 256 / len(character)} {
			for _, before := range []float64{0, 99900} {
				r := crowd(512, n, character, before)
				got := fit(r)
				if size(t, r) <= share.MaxResult {
					if !reflect.DeepEqual(got, r) {
						t.Errorf("%d of %q: it fits, and is changed", n, character)
					}
					continue
				}
				k := len(got.Regions)
				if k == 0 || !reflect.DeepEqual(got.Regions, r.Regions[:k]) || got.Numbers[postprocess.LeftOut] != before+float64(512-k) {
					t.Errorf("%d of %q: %d regions, %v", n, character, k, got.Numbers)
				}
				if s := size(t, got); s > share.MaxResult {
					t.Errorf("%d of %q: %d bytes", n, character, s)
				}
				if s := size(t, shortened(r, k+1)); s <= share.MaxResult {
					t.Errorf("%d of %q: %d regions, and one more has %d bytes", n, character, k, s)
				}
				if r.Numbers[postprocess.LeftOut] != before {
					t.Error("the result that was given is changed")
				}
			}
		}
	}
	if r := fit(pipeline.Result{Numbers: map[string]float64{"a": math.NaN()}}); len(r.Numbers) != 1 {
		t.Error("a result without JSON is changed")
	}
}
