// SPDX-License-Identifier: Apache-2.0

package group

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Reason says why a member's frame is missing in a group.
type Reason uint8

const (
	awaited   Reason = iota // not decided yet
	arriving                // it is filling
	delivered               // it is there
	Lost                    // the source's sequence numbers have a gap
	Damaged                 // it was refused, or ended with an error while it was filling
	Outside                 // the source had a frame outside of the tolerance
	Absent                  // the source went on without a frame for this group
	Late                    // it had begun, and was not complete in time
	Silent                  // the source delivers nothing
	Stopped                 // the source does not run
	numReasons
)

func (r Reason) String() string {
	return [numReasons]string{"awaited", "arriving", "delivered", "lost", "damaged", "outside", "absent", "late", "silent", "stopped"}[r]
}

// Books are the statistics of a group.
type Books struct {
	Group      string   // name of the group
	Complete   uint64   // groups with a frame of each member
	Incomplete uint64   // groups that lack a frame
	Open       int      // groups that are not decided yet
	Members    []Member // in the order of the configuration
	Recent     []Gap    // the latest incomplete groups, the newest last
	Missed     uint64   // instants at which the program could not trigger in time
	Refused    uint64   // triggers that a source did not take
}

// Member holds the statistics of a member of a group.
type Member struct {
	Source  string
	Frames  uint64            // all of the source's frames
	Grouped uint64            // frames of complete and incomplete groups
	Missing map[string]uint64 // groups that lack this member's frame, by reason
	Other   map[string]uint64 // frames of no group in these books, by reason
}

// Gap is an incomplete group.
type Gap struct {
	Number  uint64
	At      time.Time // the instant, or the exposure that opened the group
	Missing []string  // as in "right lost"
}

func (g Gap) String() string { return fmt.Sprintf("%d: %s", g.Number, strings.Join(g.Missing, ", ")) }

// Print prints the final books: complete + incomplete groups, the missing frames of each member, and the frames of no
// group.
func (b Books) Print(w io.Writer) {
	fmt.Fprintf(w, "%s: %d groups = complete %d + incomplete %d", b.Group, b.Complete+b.Incomplete, b.Complete, b.Incomplete)
	sep := " ("
	for _, m := range b.Members {
		for _, why := range slices.Sorted(maps.Keys(m.Missing)) {
			fmt.Fprintf(w, "%s%s %s %d", sep, m.Source, why, m.Missing[why])
			sep = ", "
		}
	}
	if sep == ", " {
		fmt.Fprint(w, ")")
	}
	sep = "; frames of no group: "
	for _, m := range b.Members {
		for _, why := range slices.Sorted(maps.Keys(m.Other)) {
			fmt.Fprintf(w, "%s%s %s %d", sep, m.Source, why, m.Other[why])
			sep = ", "
		}
	}
	if b.Missed+b.Refused > 0 {
		fmt.Fprintf(w, "; triggers missed %d, refused %d", b.Missed, b.Refused)
	}
	fmt.Fprintln(w)
}

// String returns the part of a status line.
func (b Books) String() string {
	s := fmt.Sprintf("%s groups %d incomplete %d", b.Group, b.Complete+b.Incomplete, b.Incomplete)
	if n := len(b.Recent); n > 0 {
		s += fmt.Sprintf(" (%s)", b.Recent[n-1])
	}
	for _, m := range b.Members {
		if n := m.Other[otherUntimed.String()]; n > 0 {
			s += fmt.Sprintf(", %s untimed %d", m.Source, n)
		}
	}
	return s
}
