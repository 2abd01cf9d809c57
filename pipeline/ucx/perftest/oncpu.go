// SPDX-License-Identifier: Apache-2.0

package perftest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// OnCPU returns how long the threads of this process have run in total, not counting threads that have ended.
func OnCPU(t testing.TB) time.Duration {
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
