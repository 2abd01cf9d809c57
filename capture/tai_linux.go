package capture

import (
	"time"

	"golang.org/x/sys/unix"
)

// TAIOffset is TAI minus UTC as the kernel knows it from NTP or PTP (37 s since 2017); ok is false when nobody has told
// it.
func TAIOffset() (offset time.Duration, ok bool) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil || t.Tai == 0 {
		return 0, false
	}
	return time.Duration(t.Tai) * time.Second, true
}
