// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/tegracast/tegracast/board/phc"
)

// clock checks the machine's clock, and that of a network adapter if the service's configuration names one.
func (p patient) clock() []finding {
	path, phc := "", false
	if c, err := p.config(); err == nil && c.Clock != nil { // recordings and serve tell of the error
		path, phc = c.Clock.PHC()
	}
	f := finding{"time", isGood, "the clock is synchronised", ""}
	if !p.synchronised() {
		f = finding{"time", isWarning, "the clock is not synchronised: other machines cannot use the frames' times", "timedatectl set-ntp true"}
		if phc { // an NTP client would compete with it
			f.Detail, f.Command = f.Detail+": let phc2sys set it from "+path, ""
		}
	}
	if !phc {
		return []finding{f}
	}
	return []finding{f, p.adapterClock(path)}
}

// An adapterTime is a reading of the clock of a network adapter.
type adapterTime struct {
	way    string        // call by which it was read
	ahead  time.Duration // how far it is ahead of this machine's UTC
	unsure time.Duration // of ahead
	scale  time.Duration // how far it should be ahead: TAI less UTC
}

// Bounds of a clock's error, from which on it is told.
const (
	clockApart  = time.Millisecond // phc2sys keeps the clocks within microseconds, NTP within a few milliseconds
	clockUnsure = 100 * time.Microsecond
)

// adapterClock checks that the clock of a network adapter can be read, by which call, and that it agrees with this
// machine's.
func (p patient) adapterClock(path string) finding {
	const what = "time"
	r, err := p.adapterTime(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return finding{what, isWarning, "clock.source: " + err.Error() + ": only root and the group tegracast may read it", "usermod -a -G tegracast " + p.user}
	case err != nil:
		return finding{what, isWarning, "clock.source: " + err.Error() + ": use another adapter, or source: system", ""}
	}
	off := r.ahead - r.scale
	side := "ahead of"
	if off < 0 {
		side = "behind"
	}
	about := fmt.Sprintf("%s is read by %s: %v %s this machine's clock, plus or minus %v", path, r.way, off.Abs(), side, r.unsure)
	switch {
	case (off+r.scale).Abs() < time.Second && r.scale != 0:
		return finding{what, isWarning, about + ": it has UTC and no TAI, so frames would be that far off: see that ptp4l and no other program sets it", ""}
	case off.Abs() > clockApart:
		return finding{what, isWarning, about + ": see that ptp4l sets it, which journalctl -u ptp4l tells, and phc2sys this machine's", ""}
	case r.unsure > clockUnsure:
		return finding{what, isWarning, about + ": use an adapter that is read faster", ""}
	}
	return finding{what, isGood, about, ""}
}

// readAdapter reads the clock of a network adapter.
func readAdapter(path string) (r adapterTime, err error) {
	c, err := phc.Open(path)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	ns, at, unsure, err := c.Read()
	return adapterTime{c.Way(), time.Duration(ns - at.UnixNano()), unsure, phc.Ahead()}, err
}
