// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"strings"
	"testing"
	"time"
)

// TestProgress checks that the progress of a task is shown in one line, not too often, and removed at the end, and that
// a file gets none of it.
func TestProgress(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out, "front.mcap")
	p.next = time.Time{}
	p.Show(0.5)
	p.End()
	if out.Len() > 0 {
		t.Errorf("a file gets %q", out.String())
	}
	p = &Progress{out: &out, width: func() int { return 14 }, name: "front.mcap"}
	p.Show(0.07)
	if p.next.IsZero() {
		t.Error("the line may be written again at once")
	}
	p.next = time.Now().Add(time.Hour)
	p.Show(0.08)
	p.next = time.Time{}
	p.name = "a"
	p.Show(1)
	p.End()
	p.End()
	const want = "\r  7 %  front…\r100 %  a     \r        \r"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
