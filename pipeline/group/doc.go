// SPDX-License-Identifier: Apache-2.0

// Package group numbers the frames of several sources that belong together, and keeps the books of complete and
// incomplete groups.
//
// # Numbers
//
// A frame gets its number on the source's goroutine, before any consumer gets the frame, and waits for nothing. With a
// rate the number is that of the nearest instant: the multiples of the rate's period since 1970, by the wall clock
// (Instants). It follows from the start of the frame's exposure alone, so any number of processes and machines whose
// clocks agree give the same number without talking to each other. Without a rate, as with an irregular trigger from
// elsewhere, the first frame of a group opens it, its exposure in µs since 1970 is the number, and frames within the
// tolerance of that exposure get the same number; that works inside one process only.
//
// # Books
//
// A group is closed when each of its members has delivered its frame, or a later one, or patience has passed since the
// group was opened. It is not kept open for longer, because a frame that is still to come has then been longer on its
// way than an exposure, a readout and a transfer take, and each open group takes memory. A frame that comes later has its
// number all the same, and is counted as late.
//
// The first groups of a run would lack the members that start later, and the last ones those that end earlier. The
// books therefore begin with the first group that every member can have, and end with the last: frames before and after
// are counted as of the edge.
//
// Complete + incomplete groups = for each member, grouped + missing frames; and each frame of a member is counted once:
// grouped, edge, late, damaged, outside, duplicate or untimed.
package group
