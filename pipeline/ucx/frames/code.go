// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"fmt"
	"strconv"
	"strings"
)

// A Code says why a connection ended.
type Code uint16

// The codes. Numbers that are not here come from a later version.
const (
	CodeEnd     Code = 1 // the other side ends
	CodeVersion Code = 2 // no version of the protocol, or of UCX, that both know
	CodeStream  Code = 3 // there is no such stream
	CodeRegion  Code = 4 // there is no such region
	CodeFull    Code = 5 // as many receivers as there may be
	CodeBroken  Code = 6 // a message that cannot be
	CodeSlow    Code = 7 // nothing was heard, or taken, for too long
)

// final says whether it is of no use to connect again.
func (c Code) final() bool { return c == CodeVersion || c == CodeRegion }

// A ByeError is what the other side said when it ended the connection.
type ByeError struct {
	Code   Code
	Reason string
}

func (e *ByeError) Error() string { return "the other side has ended the connection: " + e.Reason }

// common is the version to be spoken with somebody who said hello. An error says why there is none.
func common(h hello) (uint16, error) {
	v := min(h.newest, newest)
	if v < max(h.oldest, oldest) {
		return 0, fmt.Errorf("versions %d to %d of the protocol meet versions %d to %d: use one release of tegracast on both sides",
			h.oldest, h.newest, oldest, newest)
	}
	return v, checkRelease(h.release)
}

// Releases of UCX whose wire formats are tried with one another.
const (
	knownMajor  = 1
	oldestMinor = 13
)

// checkRelease refuses releases of UCX that nobody has tried.
func checkRelease(release string) error {
	major, rest, _ := strings.Cut(release, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	if m, bad := strconv.Atoi(major); bad != nil || err != nil || m != knownMajor || n < oldestMinor {
		return fmt.Errorf("release %q of UCX: it must be %d.%d or a later %d on both sides", release, knownMajor, oldestMinor, knownMajor)
	}
	return nil
}
