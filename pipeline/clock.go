// SPDX-License-Identifier: Apache-2.0

package pipeline

import "time"

// A ClockState says how well a camera's clock follows another one.
type ClockState string

const (
	ClockWaiting     ClockState = "waiting"     // nothing could be measured yet, and the clock has not been set
	ClockSlewing     ClockState = "slewing"     // the clock is on its way to the other one
	ClockLocked      ClockState = "locked"      // the clock has the other one's time
	ClockHoldover    ClockState = "holdover"    // the other clock does not answer, and the camera's goes on alone
	ClockUnsupported ClockState = "unsupported" // the camera's clock cannot be set
)

// ClockStates lists all states.
var ClockStates = [...]ClockState{ClockWaiting, ClockSlewing, ClockLocked, ClockHoldover, ClockUnsupported}

// A ClockReport describes the clock of a card, which follows another one.
type ClockReport struct {
	Source string         `json:"source"`              // the clock that it follows: `system`, or `phc:` and a device file
	State  ClockState     `json:"state"`               // `waiting`, `slewing`, `locked`, `holdover` or `unsupported`
	Offset *time.Duration `json:"offset_ns,omitempty"` // how far it was ahead within the last seconds; left out if that is not known
	Rate   int            `json:"rate_ppb"`            // parts in 10^9 by which it is made to run faster
	Steps  uint64         `json:"steps"`               // how often it was stepped

	Ahead time.Duration `json:"-"` // of the other clock's scale before UTC
	PTP   bool          `json:"-"` // the other clock is that of a network adapter, which PTP sets
}

// Current returns what is true at time now of a report that was made at time made: an old one has no offset, and what
// it calls locked may no longer be.
func (r ClockReport) Current(made, now time.Time) ClockReport {
	if now.Sub(made) <= clockStale || r.Offset == nil {
		return r
	}
	r.State, r.Offset = ClockHoldover, nil
	return r
}

// clockStale is the age after which a report is not shown: measurements come once a second.
const clockStale = 3 * time.Second
