// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// idle shows that the goroutines of two connected workers sleep. It adds up what the kernel has given to the threads of this process,
// which also has others, and so has room for those.
func idle(t *testing.T) {
	two(t)
	time.Sleep(200 * time.Millisecond)
	const span = 2 * time.Second
	before := onCPU(t)
	time.Sleep(span)
	used := onCPU(t) - before
	t.Logf("two connected workers: %v of CPU in %v", used, span)
	if used > span/10 { // one that spins uses ten times that
		t.Errorf("two idle workers used %v of CPU in %v", used, span)
	}
}

// onCPU returns for how long the threads of this process have run.
func onCPU(t *testing.T) time.Duration {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil || len(files) == 0 {
		t.Skip("NEEDS a kernel with schedstat: ", err)
	}
	total := time.Duration(0)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		var ns int64
		if _, err := fmt.Fscan(bytes.NewReader(b), &ns); err != nil {
			t.Fatal(err)
		}
		total += time.Duration(ns)
	}
	return total
}
