// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"strconv"
	"time"
)

// A Position is a place in a recording. Its zero value is none: the beginning, or the end.
type Position struct {
	given bool
	time  time.Duration // since the first frame; -1: it is a frame
	frame uint64        // a frame's number
}

// At is the place d after the first frame.
func At(d time.Duration) Position { return Position{given: true, time: d} }

// AtFrame is the frame of that number.
func AtFrame(n uint64) Position { return Position{given: true, time: -1, frame: n} }

// UnmarshalText implements encoding.TextUnmarshaler: a time such as 1m30s, or a frame's number.
func (p *Position) UnmarshalText(b []byte) error {
	if n, err := strconv.ParseUint(string(b), 10, 64); err == nil {
		*p = AtFrame(n)
		return nil
	}
	d, err := time.ParseDuration(string(b))
	if err != nil || d < 0 {
		return fmt.Errorf("%q: write a time since the first frame, such as 1m30s, or a frame's number, such as 1200", b)
	}
	*p = At(d)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p Position) String() string {
	switch {
	case !p.given:
		return ""
	case p.time < 0:
		return "frame " + strconv.FormatUint(p.frame, 10)
	}
	return p.time.String()
}

// reached says whether a frame with a number and a time since the first one is there, or behind.
func (p Position) reached(number uint64, since time.Duration) bool {
	if p.time < 0 {
		return number >= p.frame
	}
	return since >= p.time
}
