// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/ucx/perftest"
)

// idle shows that the goroutines of two connected workers sleep. It adds up what the kernel has given to the threads of this process,
// which also has others, and so has room for those.
func idle(t *testing.T) {
	two(t)
	time.Sleep(200 * time.Millisecond)
	const span = 2 * time.Second
	before := perftest.OnCPU(t)
	time.Sleep(span)
	used := perftest.OnCPU(t) - before
	t.Logf("two connected workers: %v of CPU in %v", used, span)
	if used > span/10 { // one that spins uses ten times that
		t.Errorf("two idle workers used %v of CPU in %v", used, span)
	}
}
