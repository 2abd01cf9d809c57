// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"context"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
)

// strobePin is on for width from each pulse of the trigger. Without a trigger it is on during the source's exposures,
// or for width from their start. It predicts these from past frames: a free-running camera exposes again after a
// period.
type strobePin struct {
	*outPin
	width   time.Duration    // 0: as long as the exposure
	flashes <-chan time.Time // starts of the trigger's pulses; nil: the strobe follows the frames
	nominal time.Duration    // the source's frame period

	exposures chan exposure // holds the latest exposure until it is taken
	last      exposure      // used by frame only
}

// exposure is one of a periodic series.
type exposure struct {
	sequence       uint64
	start          time.Time
	length, period time.Duration
}

// trusted is the number of periods without a frame for which a camera is assumed to go on exposing.
const trusted = 8

func newStrobePin(out *outPin, l *config.Line, width time.Duration, flashes <-chan time.Time) *strobePin {
	s := &strobePin{outPin: out, width: width, nominal: l.Period, exposures: make(chan exposure, 1)}
	if l.Follows {
		s.flashes = flashes
	}
	return s
}

// frame passes the exposure of a frame to run.
func (s *strobePin) frame(f *pipeline.Frame) {
	if f.Times.ExposureStart.IsZero() {
		return
	}
	e := exposure{f.Sequence, f.Times.ExposureStart, f.Times.ExposureEnd.Sub(f.Times.ExposureStart), s.nominal}
	if n := time.Duration(e.sequence - s.last.sequence); !s.last.start.IsZero() && n > 0 && n <= trusted {
		if p := e.start.Sub(s.last.start) / n; (p - s.nominal).Abs() < s.nominal/8 { // otherwise a clock has stepped
			e.period = p
		}
	}
	s.last = e
	select {
	case <-s.exposures: // drops one that was not taken yet
	default:
	}
	s.exposures <- e
}

func (s *strobePin) run(ctx context.Context) {
	if s.flashes != nil {
		s.follow(ctx)
		return
	}
	var lit time.Time // start of the latest lit exposure
	for {
		select {
		case e := <-s.exposures:
			lit = s.predict(ctx, e, lit)
		case <-ctx.Done():
			return
		}
	}
}

// follow flashes with the trigger's pulses.
func (s *strobePin) follow(ctx context.Context) {
	for {
		select {
		case at := <-s.flashes:
			if time.Since(at) < s.width { // otherwise it was not handled in time
				_ = s.flash(ctx, s.width)
			}
		case <-ctx.Done():
			return
		}
	}
}

// predict lights future exposures until ctx ends, or the next one would start more than trusted (8) periods after the
// latest that a frame reported. lit is the start of the latest lit exposure; predict returns it for the next call.
func (s *strobePin) predict(ctx context.Context, e exposure, lit time.Time) time.Time {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		at := e.next(time.Now(), lit)
		if at.Sub(e.start) > trusted*e.period {
			return lit
		}
		timer.Reset(time.Until(at))
		select {
		case e = <-s.exposures:
			continue
		case <-ctx.Done():
			return lit
		case <-timer.C:
		}
		lit = at
		length := s.width
		if length == 0 {
			length = e.length
		}
		_ = s.flash(ctx, length-time.Since(at)) // set has counted the failure
	}
}

// next returns the start of the first exposure that was not lit and did not begin more than an eighth of a period ago.
func (e exposure) next(now, lit time.Time) time.Time {
	after := now.Add(-e.period / 8)
	if least := lit.Add(e.period / 2); least.After(after) {
		after = least
	}
	n := (after.Sub(e.start) + e.period - 1) / e.period
	return e.start.Add(n * e.period)
}
