// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/ucx/perftest"
)

// idle checks that the goroutines of two connected workers sleep. It measures the CPU time of the whole process; the
// limit allows for its other threads.
func idle(t *testing.T) {
	two(t)
	time.Sleep(200 * time.Millisecond)
	const span = 2 * time.Second
	before := perftest.OnCPU(t)
	time.Sleep(span)
	used := perftest.OnCPU(t) - before
	t.Logf("two connected workers: %v of CPU in %v", used, span)
	if used > span/10 { // a spinning worker uses ten times as much
		t.Errorf("two idle workers used %v of CPU in %v", used, span)
	}
}
