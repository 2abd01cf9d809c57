// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Position is a position in a recording. The zero value means the beginning of the recording for the start of a
// range, and its end for the end of a range.
type Position struct {
	kind positionKind
	n    uint64 // a frame's number, or the difference to that of the first frame
	ns   int64  // a time: since that of the first frame, or since 1970
}

type positionKind uint8

const (
	byNumber positionKind = iota + 1
	byCount               // by a number counted from the first frame's
	bySince               // by the time since the first frame
	byTime
)

// At returns the position d after the first frame. d must not be negative.
func At(d time.Duration) Position { return Position{kind: bySince, ns: int64(d)} }

// AtTime returns the position of the time t, whose year must be from 1678 to 2261.
func AtTime(t time.Time) Position { return Position{kind: byTime, ns: t.UnixNano()} }

// AtFrame returns the position of the frame with number n.
func AtFrame(n uint64) Position { return Position{kind: byNumber, n: n} }

// AfterFirst returns the position of the frame whose number is that of the first frame plus n.
func AfterFirst(n uint64) Position { return Position{kind: byCount, n: n} }

// UnmarshalText implements encoding.TextUnmarshaler. It accepts a frame's number such as 1200, a number counted from
// the first frame such as +40, a time since the first frame such as 1m30s, and a time in the format of RFC 3339.
func (p *Position) UnmarshalText(b []byte) error {
	text := string(b)
	digits, counted := strings.CutPrefix(text, "+")
	if n, err := strconv.ParseUint(digits, 10, 64); err == nil {
		if *p = AtFrame(n); counted {
			*p = AfterFirst(n)
		}
		return nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		*p = At(d)
		return nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil && t.Equal(time.Unix(0, t.UnixNano())) {
		*p = AtTime(t)
		return nil
	}
	return fmt.Errorf("%q: write a frame's number such as 1200, +40 for 40 frames after the first one, "+
		"a time since the first one such as 1m30s, or a time such as 2026-11-24T06:33:02.5Z", text)
}

// MarshalText implements encoding.TextMarshaler. UnmarshalText accepts the text, unless it is empty.
func (p Position) MarshalText() ([]byte, error) {
	if p.kind == byNumber {
		return strconv.AppendUint(nil, p.n, 10), nil
	}
	return []byte(p.String()), nil
}

func (p Position) String() string {
	switch p.kind {
	case byNumber:
		return "frame " + strconv.FormatUint(p.n, 10)
	case byCount:
		return "+" + strconv.FormatUint(p.n, 10)
	case bySince:
		return time.Duration(p.ns).String()
	case byTime:
		return shown(time.Unix(0, p.ns))
	}
	return ""
}

// given reports whether p is not the zero value.
func (p Position) given() bool { return p.kind != 0 }

// resolved returns p as the number of a frame or as a time since the first frame, which has the given number and time.
func (p Position) resolved(number uint64, first time.Time) Position {
	switch p.kind {
	case byCount:
		return AtFrame(number + min(p.n, ^number))
	case byTime:
		return At(time.Unix(0, p.ns).Sub(first)) // may be negative
	}
	return p
}

// reached reports whether a frame with the given number and time since the first frame is at or after p, which must be
// resolved.
func (p Position) reached(number uint64, since time.Duration) bool {
	if p.kind == byNumber {
		return number >= p.n
	}
	return int64(since) >= p.ns
}

// shown returns a time as users see it.
func shown(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// rangeError returns an error that wraps ErrRange, because no frame of the files lies from from to to. It names the
// frames that there are.
func rangeError(ctx context.Context, files []string, from, to Position) error {
	begin, err := OpenReader(ctx, files[0], nil)
	if err != nil {
		return err
	}
	defer func() { _ = begin.Close() }() // the files were only read
	end, err := OpenReader(ctx, files[len(files)-1], nil)
	if err != nil {
		return err
	}
	defer func() { _ = end.Close() }()
	first, err := begin.Frame(begin.first, 0)
	if err != nil {
		return err
	}
	last := end.last()
	if last == nil {
		last = first
	}
	has := "the file has"
	if len(files) > 1 {
		has = fmt.Sprintf("the %d files have", len(files))
	}
	return fmt.Errorf("%s: %w", files[0], noneIn(from, to, has, first.Note.Frame, last.Note.Frame, first.At, last.At))
}

// noneIn returns an error that wraps ErrRange: no frame lies from from to to, where has, such as "the file has", has frames
// from number first, taken at begin, to number last, taken at end.
func noneIn(from, to Position, has string, first, last uint64, begin, end time.Time) error {
	var asked []string
	if from.given() {
		asked = append(asked, "from "+from.String()+" on")
	}
	if to.given() {
		asked = append(asked, "before "+to.String())
	}
	return fmt.Errorf("%w %s: %s frames %d to %d, taken from %s to %s (%v)", ErrRange, strings.Join(asked, " and "),
		has, first, last, shown(begin), shown(end), end.Sub(begin).Round(time.Millisecond))
}

// last returns the last frame that can be read, or nil.
func (r *Reader) last() *Frame {
	for i := len(r.Chunks) - 1; i >= 0; i-- {
		if f, err := r.Frame(i, r.count(i)-1); err == nil {
			return f
		}
	}
	return nil
}
