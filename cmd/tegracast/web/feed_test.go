// SPDX-License-Identifier: Apache-2.0

package web

import (
	"os/exec"
	"testing"
)

// TestFeed checks what the page's feed does when the appliance begins again, when tabs want pictures at different rates,
// when a stream is refused, and when its shared worker does not answer.
func TestFeed(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "node", "testdata/feed.js").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v (make setup-test installs nodejs)\n%s", err, out)
	}
}
