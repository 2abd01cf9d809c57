// SPDX-License-Identifier: Apache-2.0

package receive

// A verifier compares received frames with the sender's checksums, whichever arrives first.
type verifier struct {
	frames, checksums [pendingChecks]check
	nextFrame         int
	nextChecksum      int

	matched, mismatched, unverified uint64
}

// pendingChecks is the maximum number of frames that can wait for their checksums, and of checksums that can wait for
// their frames. It is larger than the number that a receiver finds in its sockets after standing still for a second or
// two, when it reads one socket before the other.
const pendingChecks = 128

type check struct {
	pending   bool
	timestamp uint32
	crc       uint32
	bytes     uint32
}

func (v *verifier) frame(c check) {
	if !v.match(&v.checksums, c) {
		if v.keep(&v.frames, &v.nextFrame, c) {
			v.unverified++
		}
	}
}

func (v *verifier) checksum(c check) {
	if !v.match(&v.frames, c) {
		v.keep(&v.checksums, &v.nextChecksum, c)
	}
}

func (v *verifier) match(others *[pendingChecks]check, c check) bool {
	for i := range others {
		o := &others[i]
		if !o.pending || o.timestamp != c.timestamp {
			continue
		}
		o.pending = false
		if o.crc == c.crc && o.bytes == c.bytes {
			v.matched++
		} else {
			v.mismatched++
		}
		return true
	}
	return false
}

// keep replaces the oldest check by c and reports whether the old one was still pending.
func (v *verifier) keep(ring *[pendingChecks]check, next *int, c check) (lost bool) {
	lost = ring[*next].pending
	c.pending = true
	ring[*next] = c
	*next = (*next + 1) % pendingChecks
	return lost
}

// newest returns the nth last of the frames that were completed before their checksum arrived; 0 is the last one.
func (v *verifier) newest(n int) *check {
	return &v.frames[(v.nextFrame+2*pendingChecks-1-n)%pendingChecks]
}

// awaits reports whether the checksum of any of the n newest frames (see newest) has not arrived yet.
func (v *verifier) awaits(n int) bool {
	for i := range n {
		if v.newest(i).pending {
			return true
		}
	}
	return false
}

// finish counts the frames whose checksum has not arrived as unverified, except for the newest, whose checksum may
// still be in transit.
func (v *verifier) finish() {
	v.newest(0).pending = false
	for i := range v.frames {
		if v.frames[i].pending {
			v.unverified++
		}
		v.frames[i].pending = false
	}
}
