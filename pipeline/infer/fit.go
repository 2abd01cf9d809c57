// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"encoding/json"
	"maps"
	"sort"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/postprocess"
	"github.com/tegracast/tegracast/pipeline/share"
)

// fit returns a result that share takes: without the last regions, which have the lowest scores, if all would have more than
// share.MaxResult bytes. The number postprocess.LeftOut counts them.
func fit(r pipeline.Result) pipeline.Result {
	if fits(r) {
		return r
	}
	return shortened(r, sort.Search(len(r.Regions), func(n int) bool { return !fits(shortened(r, n+1)) }))
}

// shortened returns a result with the first n of its regions.
func shortened(r pipeline.Result, n int) pipeline.Result {
	if out := len(r.Regions) - n; out > 0 {
		numbers := map[string]float64{}
		maps.Copy(numbers, r.Numbers)
		numbers[postprocess.LeftOut] += float64(out)
		r.Regions, r.Numbers = r.Regions[:n], numbers
	}
	return r
}

func fits(r pipeline.Result) bool {
	r.Stage, r.Began, r.Ended = "", time.Time{}, time.Time{}
	text, err := json.Marshal(r)
	return err != nil || len(text) <= share.MaxResult // an error is Respond's
}
