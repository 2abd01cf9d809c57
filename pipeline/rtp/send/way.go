// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// Way is how packets are handed to the kernel.
type Way uint8

const (
	Automatic Way = iota // the best that the socket turns out to do, a lesser one from when it fails
	ZeroCopy             // Segments from packet-ready memory with MSG_ZEROCOPY: the frame is held until the kernel has let go
	Segments             // a message a burst, cut into packets by UDP_SEGMENT (udp(7)) in the kernel or the network card
	Messages             // a message a packet, by sendmmsg
	Single               // a call a packet, by sendmsg
)

func (w Way) String() string {
	return [...]string{"automatic", "zero-copy segments", "segments", "messages", "single"}[w]
}

// A sender hands packets to one socket, in one call of the kernel that does not wait.
type sender interface {
	// send offers packets from to to of t, and returns how many were taken, and their bytes: at least one packet without
	// an error, and not always all.
	send(fd int, t *train, from, to int) (packets, bytes int, errno unix.Errno)
}

// way is the Way of one socket, and what it needs.
type way struct {
	kind      Way       // the one that works
	best      sender    // of kind
	now       sender    // for this train
	zero      *zeroCopy // nil when it never worked
	errors    errorQueue
	departure *departure // by which the kernel paces; nil: it does not
	ahead     int        // bursts that the kernel may keep until their time
	burst     int        // packets that leave together
	log       *slog.Logger
}

// choose sets the best way that works, or the one that is wanted. ready says that trains are packet-ready.
func (w *way) choose(fd int, want Way, ready bool) {
	if want == Automatic {
		if want = Segments; ready {
			want = ZeroCopy
		}
		if err := probeSegments(); errors.Is(err, errNoSegments) {
			w.log.Info("rtp: this kernel does not segment datagrams (UDP_SEGMENT)", "error", err)
			want = Messages
		}
	}
	w.use(fd, want)
	w.log.Info("rtp: sending with " + w.kind.String())
}

// leaveOnTime lets the kernel pace, when a probe by b shows that it does.
func (w *way) leaveOnTime(s *socket, c Config, b []byte) {
	if w.kind > Segments {
		return
	}
	d, err := findDeparture(s.link, s.addr, c, b)
	if err == nil {
		err = d.set(s.fd)
	}
	if err != nil {
		w.log.Debug("rtp: the kernel does not pace on this path, a timer does", "error", err)
		return
	}
	room := 2 * c.Burst * c.MTU // that the kernel counts for a burst, with its overhead
	if granted, err := udp.SetBuffer(s.fd, unix.SO_SNDBUF, maxAhead*room); err == nil {
		s.buffer = granted
	}
	w.departure, w.ahead = &d, min(maxAhead, s.buffer/room)
	w.use(s.fd, w.kind)
	w.log.Info("rtp: the kernel paces, by "+d.name, "bursts_ahead", w.ahead)
}

// use takes a way, or the next one that the socket has.
func (w *way) use(fd int, kind Way) {
	if w.kind = kind; kind > Segments {
		w.ahead = 0 // these do not say when
	}
	switch kind {
	case ZeroCopy:
		z, err := newZeroCopy(fd, w.burst, &w.errors)
		if err != nil {
			w.log.Info("rtp: zero-copy is not available", "error", err)
			w.use(fd, Segments)
			return
		}
		w.best, w.zero = z, z
		z.departure = w.departure
	case Segments:
		s := newSegments(w.burst)
		s.departure = w.departure
		w.best = s
	case Messages:
		w.best = &messages{}
	default:
		w.best = single{}
	}
	w.now = w.best
}

// begin sets the way of a train. safe says that packets do leave: what waits for a neighbour's address would keep the frame.
func (w *way) begin(safe bool) {
	if w.now = w.best; w.kind == ZeroCopy && !safe {
		w.now = &w.zero.segments
	}
}

// reap learns what the kernel has let go of, and returns the error of the last ICMP answer. When the kernel has made copies
// after all, as for a receiver on this machine, zero-copy is given up: it costs more than it saves.
func (w *way) reap(fd int) unix.Errno {
	if w.zero == nil {
		w.errors.next(fd) // there are no notes: this reads all
		return w.errors.take()
	}
	w.zero.reap(fd)
	if w.zero.copied && w.kind == ZeroCopy {
		w.use(fd, Segments)
		w.log.Info("rtp: sending with " + w.kind.String() + " from now on: the kernel copies on this path")
	}
	return w.errors.take()
}

// fallBack goes on by a lesser way when the one in use fails with errno. What has to do with this packet or this moment
// alone is true for the rest of the train; what the kernel or the card cannot do is true for ever.
func (w *way) fallBack(fd int, errno unix.Errno) bool {
	switch w.now.(type) {
	case single:
		return false
	case *messages:
		if errno != unix.ENOSYS {
			return false
		}
	}
	switch errno {
	case unix.EMSGSIZE, unix.ENOBUFS:
		w.now = &messages{}
	case unix.EIO, unix.EINVAL, unix.EOPNOTSUPP, unix.EFAULT, unix.ENOSYS:
		w.use(fd, w.kind+1)
		w.log.Warn("rtp: sending with "+w.kind.String()+" from now on", "error", errno)
	default:
		return false
	}
	return true
}
