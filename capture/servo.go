// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// Constants of the servo. An interval is pairEvery; a rate is in parts in 10^9, which is ns a second.
const (
	servoP = 0.7 // share of the offset that the rate removes in the next interval
	servoI = 0.3 // share of the offset by which the estimate of the crystal's error changes
	// servoTrust limits the offset by which the estimate changes: a larger one is a jump of a clock, not its rate.
	servoTrust = 100 * time.Microsecond
	// servoMost is the largest rate: that of the register (docs/fpga-interface.md, "Clocking").
	servoMost = 1_000_000
	// stepAhead is the largest offset behind the clock for which a counter is not stepped ahead while cameras run: at
	// servoMost it is gone after ten seconds.
	stepAhead = 10 * time.Millisecond
	// locked: so many offsets in a row were at most lockedWithin, and certain to that much.
	lockedAfter  = 3
	lockedWithin = 10 * time.Microsecond
	// doubted is the offset of a locked counter that is not believed until the next one confirms it.
	doubted = time.Millisecond
)

// A servo decides how a counter is moved to the clock that it follows: a proportional-integral controller with a
// threshold for steps, as phc2sys of linuxptp has one. It knows no hardware.
type servo struct {
	crystal float64        // rate that makes up for the counter's crystal, as estimated
	rate    float64        // rate now
	known   bool           // crystal is an estimate
	first   *offsetReading // the reading before the estimate; nil: none
	good    int            // offsets in a row that were small
	doubt   *offsetReading // an offset that waits for its confirmation; nil: none
}

// offsetReading is an offset, which is positive if the counter is ahead, and the time at which it was measured. It is right to
// within plus or minus unsure.
type offsetReading struct {
	offset, unsure time.Duration
	at             time.Time
}

// next returns by how much the counter is stepped, and sets s.rate. back allows a step back. believed is false if the
// reading contradicts those before it, so that nothing is changed until the next one. jumped reports that the counter
// itself has jumped, so that a large offset is no surprise.
func (s *servo) next(now offsetReading, back, jumped bool) (step time.Duration, believed bool) {
	if !s.believe(now, jumped) {
		return 0, false
	}
	if now.offset < -stepAhead || back && now.offset.Abs() > stepAhead {
		step, now.offset = -now.offset, 0
	}
	if jumped || step != 0 {
		s.good = 0
	}
	if !s.known {
		s.estimate(now)
	}
	if now.offset.Abs() <= lockedWithin && now.unsure <= lockedWithin && s.known {
		s.good++
	} else {
		s.good = 0
	}
	error := float64(now.offset)
	s.rate = s.crystal - servoP*error
	if limited := min(max(s.rate, -servoMost), servoMost); limited != s.rate {
		s.rate = limited // and the estimate stays: it would run away
	} else if s.known && s.first == nil {
		s.crystal -= servoI * min(max(error, -float64(servoTrust)), float64(servoTrust))
	}
	s.first = nil
	if !s.known {
		s.first = &now
	}
	return step, true
}

// believe reports whether a reading can be right. A locked counter does not lose a millisecond within an interval, but a
// clock that somebody sets does, and a processor that was taken away between two readings looks the same.
func (s *servo) believe(now offsetReading, jumped bool) bool {
	before := s.doubt
	s.doubt = nil
	if jumped || s.good < lockedAfter || now.offset.Abs() <= doubted {
		return true
	}
	if before != nil && (before.offset-now.offset).Abs() <= doubted {
		return true
	}
	s.doubt = &now
	return false
}

// estimate estimates the crystal's error from two offsets, between which the rate was s.rate.
func (s *servo) estimate(now offsetReading) {
	if s.first == nil {
		return
	}
	passed := now.at.Sub(s.first.at).Seconds()
	if passed <= 0 {
		return
	}
	if drift := float64(now.offset-s.first.offset)/passed - s.rate; drift > -servoMost && drift < servoMost {
		s.crystal, s.known = -drift, true
	}
}

// lost is called when no reading could be taken: the counter goes on at the rate of its crystal.
func (s *servo) lost() { s.rate, s.good, s.doubt, s.first = s.crystal, 0, nil, nil }

// state returns the state after a reading.
func (s *servo) state() pipeline.ClockState {
	if s.good >= lockedAfter {
		return pipeline.ClockLocked
	}
	return pipeline.ClockSlewing
}
