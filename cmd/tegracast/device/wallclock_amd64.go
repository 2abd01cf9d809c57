// SPDX-License-Identifier: Apache-2.0

//go:build modelcontrol

package device

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// The wall clock of this process alone, for tests: the machine's stays as it is, and so does the monotonic clock. The runtime's variable is reached
// in programs that are linked with -checklinkname=0.
var (
	wallAhead   int64   // seconds, read by steppedClock
	systemClock uintptr // the vDSO's function; 0: it could not be taken

	takeClockOnce = sync.OnceFunc(takeClock)
)

func takeClock()

// stepWall has time.Now of this process be ahead of the machine's clock from now on, by whole seconds.
func stepWall(ahead time.Duration) error {
	takeClockOnce()
	if systemClock == 0 {
		return errors.New("the runtime does not read its clock by the vDSO")
	}
	atomic.StoreInt64(&wallAhead, int64(ahead/time.Second))
	return nil
}
