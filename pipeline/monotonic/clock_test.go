// SPDX-License-Identifier: Apache-2.0

package monotonic

import (
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	c := NewClock()
	if before, at := Now(), c.Now(); at < before-time.Millisecond || at > Now()+time.Millisecond {
		t.Errorf("the clock says %v, the kernel's %v", at, before)
	}
	now := time.Now()
	if d := c.Of(now.Add(time.Hour)) - c.Of(now); d != time.Hour {
		t.Errorf("an hour lasts %v", d)
	}
}
