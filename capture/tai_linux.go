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

// TAI is At on the scale of International Atomic Time, as PTP has it: the wall clock of the returned time reads TAI. ok is
// false before the first Update, and while the kernel does not know the offset.
func (c *Clock) TAI(ticks uint64) (t time.Time, uncertainty time.Duration, ok bool) {
	offset, known := TAIOffset()
	t, uncertainty = c.At(ticks)
	if !known || t.IsZero() {
		return time.Time{}, 0, false
	}
	return t.Add(offset), uncertainty, true
}
