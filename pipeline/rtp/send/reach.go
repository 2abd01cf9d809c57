// SPDX-License-Identifier: Apache-2.0

package send

// reach is what is known of a host: whether it is there. The kernel keeps packets until a neighbour has told its address,
// and says after some seconds that none has (EHOSTUNREACH).
type reach struct {
	is     presence
	leaves bool // packets have left, which the kernel does not keep any more
}

type presence uint8

const (
	here  presence = iota // as far as is known
	away                  // no host has answered
	asked                 // a burst has been sent to find out
)

// lose notes that the host is away.
func (d *destination) lose() { d.reach = reach{is: away} }

// leaves says whether packets leave this machine: the kernel has let go of those that it was given.
func (d *destination) leaves() bool {
	if !d.reach.leaves && d.reach.is == here && d.counters.packets.Load() > 0 {
		d.reach.leaves = queued(d.socket.fd) == 0
	}
	return d.reach.leaves
}

// trial returns up to which packet may be sent to a host that was away: a burst, while the kernel has none, and the rest of
// the train when that has left without an answer that nobody is there.
func (d *destination) trial(to int) int {
	next := d.progress.next
	if queued(d.socket.fd) > 0 {
		return next
	}
	if d.reap(); d.reach.is == asked {
		d.reach.is = here
		return to
	}
	d.reach.is = asked
	return min(to, next+d.way.burst)
}
