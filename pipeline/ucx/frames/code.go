// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"fmt"

	"github.com/tegracast/tegracast/pipeline/ucx"
)

// A Code is the reason why a connection ended.
type Code uint16

// The codes. Unknown numbers come from a later version.
const (
	CodeEnd     Code = 1 // the side that sends this code ends the stream or shuts down
	CodeVersion Code = 2 // no common version of the protocol or of UCX
	CodeStream  Code = 3 // no such stream
	CodeRegion  Code = 4 // no such region
	CodeFull    Code = 5 // the maximum number of receivers is connected
	CodeBroken  Code = 6 // malformed or unexpected message
	CodeSlow    Code = 7 // the peer sent or took nothing for too long
)

// final reports whether reconnecting is pointless.
func (c Code) final() bool { return c == CodeVersion || c == CodeRegion }

// A ByeError is the reason, given by the peer or by this side, for ending a connection.
type ByeError struct {
	Code   Code
	Reason string
}

func (e *ByeError) Error() string { return "the connection was ended: " + e.Reason }

// common returns the protocol version to use with the sender of h, or an error if there is none or its release of UCX
// cannot be used.
func common(h hello) (uint16, error) {
	v := min(h.newest, newest)
	if v < max(h.oldest, oldest) {
		return 0, fmt.Errorf("versions %d to %d of the protocol meet versions %d to %d: use one release of tegracast on both sides",
			h.oldest, h.newest, oldest, newest)
	}
	return v, ucx.CheckRelease(h.release)
}
