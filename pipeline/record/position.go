// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"strconv"
	"time"
)

// A Position is a position in a recording. The zero value means the beginning of the recording for the start of a
// range, and its end for the end of a range.
type Position struct {
	given bool
	time  time.Duration // since the first frame; -1: the position is given by the field frame
	frame uint64        // number of a frame
}

// At returns the position d after the first frame. d must not be negative.
func At(d time.Duration) Position { return Position{given: true, time: d} }

// AtFrame returns the position of the frame with number n.
func AtFrame(n uint64) Position { return Position{given: true, time: -1, frame: n} }

// UnmarshalText implements encoding.TextUnmarshaler. It accepts a time such as 1m30s, or a frame's number.
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

// MarshalText implements encoding.TextMarshaler. UnmarshalText accepts the text, unless it is empty.
func (p Position) MarshalText() ([]byte, error) {
	if p.given && p.time < 0 {
		return strconv.AppendUint(nil, p.frame, 10), nil
	}
	return []byte(p.String()), nil
}

func (p Position) String() string {
	switch {
	case !p.given:
		return ""
	case p.time < 0:
		return "frame " + strconv.FormatUint(p.frame, 10)
	}
	return p.time.String()
}

// reached reports whether a frame with the given number and time since the first frame is at or after p.
func (p Position) reached(number uint64, since time.Duration) bool {
	if p.time < 0 {
		return number >= p.frame
	}
	return since >= p.time
}
