// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// TestResets checks that of many threads that reset the function only one does at a time, and that the others get an
// error. A process that opens the function must not wait for all of them.
func TestResets(t *testing.T) {
	noLeak(t)
	const threads = 12
	d := open(t)
	var done atomic.Int32
	var end atomic.Bool
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			for !end.Load() {
				switch _, err := uapi.DoControl(d.fd, uapi.ControlReset, 0); {
				case err == nil:
					done.Add(1)
				case !errors.Is(err, unix.EBUSY):
					t.Errorf("RESET beside others: %v", err)
					return
				}
			}
		})
	}
	for begin := time.Now(); done.Load() < 3 && time.Since(begin) < patience; {
		before := done.Load()
		open(t).close()
		if n := done.Load() - before; n > threads/2 {
			t.Errorf("%d resets while the device was opened and closed", n)
		}
	}
	end.Store(true)
	all.Wait()
	if n := done.Load(); n < 3 {
		t.Errorf("%d resets were done", n)
	}
}
