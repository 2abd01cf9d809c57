// SPDX-License-Identifier: Apache-2.0

//go:build modelcontrol

package device

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// The wall clock of this process, for tests. The machine's clock and the monotonic clock are unaffected. Access to the
// runtime's variable requires linking with -checklinkname=0.
var (
	wallAhead   int64   // seconds, read by steppedClock
	systemClock uintptr // the vDSO's function; 0: it could not be replaced

	takeClockOnce = sync.OnceFunc(takeClock)
)

func takeClock()

// stepWall puts time.Now of this process ahead of the machine's clock by whole seconds.
func stepWall(ahead time.Duration) error {
	takeClockOnce()
	if systemClock == 0 {
		return errors.New("the runtime does not read its clock by the vDSO")
	}
	atomic.StoreInt64(&wallAhead, int64(ahead/time.Second))
	return nil
}
