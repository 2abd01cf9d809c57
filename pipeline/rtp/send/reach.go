// SPDX-License-Identifier: Apache-2.0

package send

// reach records whether a host is reachable. The kernel holds packets until a neighbour has answered with its address,
// and reports EHOSTUNREACH if none has done so after some seconds.
type reach struct {
	is     presence
	leaves bool // packets have left the kernel's queue
}

type presence uint8

const (
	here  presence = iota // reachable, as far as is known
	away                  // no host has answered
	asked                 // a burst was sent to find out
)

// lose records that the host is away.
func (d *destination) lose() { d.reach = reach{is: away} }

// leaves reports whether packets leave this machine, that is, whether the kernel's queue has been empty after sending.
func (d *destination) leaves() bool {
	if !d.reach.leaves && d.reach.is == here && d.counters.packets.Load() > 0 {
		d.reach.leaves = queued(d.socket.fd) == 0
	}
	return d.reach.leaves
}

// trial returns the end of the packets that may be sent to a host that was away: one burst while the kernel's queue is
// empty, and the rest of the train after that burst has left without an error. Before that, it is the next packet, so
// that none is sent.
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
