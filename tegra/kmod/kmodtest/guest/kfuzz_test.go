// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// TestKfuzz runs /kfuzz for $KFUZZ_DURATION, with failing allocations if the kernel supports them, and checks that no
// kernel resources are left and that the device works.
func TestKfuzz(t *testing.T) {
	noLeak(t)
	seed := os.Getenv("KFUZZ_SEED")
	if seed == "" {
		seed = strconv.FormatInt(time.Now().UnixNano()&(1<<40-1), 10)
	}
	c := exec.Command("/kfuzz", "-device", devicePath, "-function", function, "-duration", os.Getenv("KFUZZ_DURATION"), "-seed", seed)
	if injectable(t) {
		c.Args = append(c.Args, "-inject")
	}
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("seed %s: %v", seed, err)
	}
	newScene(t).usable(t)
}
