// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// Way is a method of handing packets to the kernel.
type Way uint8

const (
	Automatic Way = iota // the best one that the socket supports, and a lesser one after a failure
	ZeroCopy             // Segments from packet-ready memory with MSG_ZEROCOPY: the frame is held until the kernel has finished with it
	Segments             // one message per burst, cut into packets by UDP_SEGMENT (udp(7)) in the kernel or the network card
	Messages             // one message per packet, by sendmmsg
	Single               // one call per packet, by sendmsg
)

func (w Way) String() string {
	return [...]string{"automatic", "zero-copy segments", "segments", "messages", "single"}[w]
}

// A sender hands packets to one socket, without blocking.
type sender interface {
	// send offers packets [from, to) of t to the socket, and returns the numbers of packets and bytes that it accepted:
	// without an error at least one packet, but not always all.
	send(fd int, t *train, from, to int) (packets, bytes int, errno unix.Errno)
}

// way is the Way of one socket, with its state.
type way struct {
	kind      Way       // the one in use; not Automatic
	best      sender    // sender of kind
	now       sender    // sender of the current train
	zero      *zeroCopy // nil if zero-copy never worked
	errors    errorQueue
	departure *departure // used if the kernel paces; otherwise nil
	ahead     int        // maximum number of bursts that may be handed over before they are due
	burst     int        // number of packets that leave together
	log       *slog.Logger
}

// choose selects the way want or, if want is Automatic, the best one for this kernel. If the socket does not support
// ZeroCopy, it selects Segments instead. ready is true if trains are packet-ready.
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

// leaveOnTime lets the kernel pace, if the way is ZeroCopy or Segments, and probing the path with b shows that it can.
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
	room := 2 * c.Burst * c.MTU // bytes that the kernel counts for a burst, including overhead
	if granted, err := udp.SetBuffer(s.fd, unix.SO_SNDBUF, maxAhead*room); err == nil {
		s.buffer = granted
	}
	w.departure, w.ahead = &d, min(maxAhead, s.buffer/room)
	w.use(s.fd, w.kind)
	w.log.Info("rtp: the kernel paces, by "+d.name, "bursts_ahead", w.ahead)
}

// use selects a way, or Segments in place of ZeroCopy if the socket does not support that.
func (w *way) use(fd int, kind Way) {
	if w.kind = kind; kind > Segments {
		w.ahead = 0 // the other ways cannot set departure times
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

// chooseSender selects the sender of a train. safe is true if packets are known to leave the machine; packets that wait
// for a neighbour's address would hold their frame.
func (w *way) chooseSender(safe bool) {
	if w.now = w.best; w.kind == ZeroCopy && !safe {
		w.now = &w.zero.segments
	}
}

// reap finds out which messages the kernel has finished with, and returns the error of the last ICMP answer since the
// previous call, or 0. If the kernel has made copies after all, as for a receiver on this machine, zero-copy is given
// up, because it then costs more than it saves.
func (w *way) reap(fd int) unix.Errno {
	if w.zero == nil {
		w.errors.next(fd) // there are no zero-copy notifications, so this empties the queue
		return w.errors.takeError()
	}
	w.zero.reap(fd)
	if w.zero.copied && w.kind == ZeroCopy {
		w.use(fd, Segments)
		w.log.Info("rtp: sending with " + w.kind.String() + " from now on: the kernel copies on this path")
	}
	return w.errors.takeError()
}

// fallBack switches to a lesser way after the current one failed with errno, and reports whether it did. If the cause
// is specific to this packet or moment, the switch applies to the rest of the train; if the kernel or the network card
// lacks a feature, it is permanent.
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
