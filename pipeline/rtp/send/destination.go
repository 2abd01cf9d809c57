// SPDX-License-Identifier: Apache-2.0

package send

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A destination is a receiver of one copy of the stream.
type destination struct {
	name     string                // as configured, or the reader's address
	reader   string                // protocol by which a reader requested the stream; empty if configured
	line     *interleaved          // for a reader's connection; nil for UDP
	heard    func(from netip.Addr) // called for each RTCP compound received by UDP; may be nil
	start    start
	counters counters
	progress progress

	mu     sync.Mutex // guards the fields up to closed; held while a burst is sent
	paused bool       // gets RTCP only
	skips  bool       // gets no more packets of the current train, because it was paused
	fresh  bool       // the next train is the first one
	socket socket
	way    way
	reach  reach
	got    reception
	closed bool // written with the transmitter's lock held as well

	log    *slog.Logger
	taken  uint64     // whole trains during which the host refused nothing
	told   unix.Errno // reason of the last change of state, see logState; 0 for whole frames
	logged time.Time  // time of the last log message
}

// start tells a reader which packet it gets first. The transmitter's lock guards it, but not the channel.
type start struct {
	first   chan First               // gets the start of the next train if due; nil if nobody needs it
	due     bool                     // the next train is the first one
	message func(First, bool) []byte // for a connection: what precedes the first packet; nil: nothing
}

// progress is the progress of the current train.
type progress struct {
	next    int        // number of the next packet to send
	clogged bool       // stopped for lack of buffers below the socket
	stale   bool       // a refusal was seen before the train's first packet was sent
	why     unix.Errno // why the rest of the train was given up; 0 if it was not
}

// open reports whether packets before to remain to be sent.
func (p *progress) open(to int) bool { return p.why == 0 && p.next < to }

// newDestination opens the sockets of a destination and chooses its way. buffer is the requested size of the RTP
// socket's buffer in bytes; ready is true if trains are packet-ready.
func newDestination(to Destination, c Config, buffer int, ready bool) (*destination, error) {
	s, err := open(to.Addr, c, buffer)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDestination, to.Name, err)
	}
	log := c.Logger.With("destination", to.Name)
	d := &destination{name: to.Name, socket: s, log: log, way: way{burst: c.Burst, log: log}}
	d.counters.head = uint64(c.HeaderSize())
	d.way.choose(s.fd, c.Way, ready)
	return d, nil
}

// beginTrain starts a new train. The whole train is given up if the destination is a connection with too many unsent
// bytes (interleaved.late), and skipped if it is closed or paused.
func (d *destination) beginTrain(t *train) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.progress, d.got.spoilt = progress{}, false
	if d.skips = d.paused; d.closed || d.skips {
		d.progress.why = errRemoved
		return
	}
	d.way.chooseSender(d.way.kind != ZeroCopy || d.leaves())
	if d.line != nil && !d.fresh && d.line.late(t) {
		d.giveUp(t, unix.EAGAIN)
	}
	d.fresh = false
}

// lagging reports whether the destination is away, or its last train was given up because the network took packets too
// slowly.
func (d *destination) lagging() bool { return d.told == unix.EAGAIN || d.late() == unix.EHOSTUNREACH }

// late returns the reason for giving up a train of which packets are still unsent: EHOSTUNREACH if the host is away,
// otherwise EAGAIN.
func (d *destination) late() unix.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reach.is != here {
		return unix.EHOSTUNREACH
	}
	return unix.EAGAIN
}

// ahead returns the maximum number of bursts that may be handed over before they are due: to a kernel that paces, or to
// a connection. Otherwise it returns 0.
func (d *destination) ahead() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.way.ahead
}

// push sends packets before to, until the socket buffer is full or the train is given up. If the kernel paces, they leave
// at departure. For a connection push may send none, until there are more of them.
func (d *destination) push(t *train, to int, departure time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.way.departure != nil {
		d.way.departure.next = departure
	}
	if d.line != nil {
		to = d.line.portion(t, d.progress.next, to)
	}
	d.offer(t, to)
}

// flush is push, but it does not wait for more packets.
func (d *destination) flush(t *train, to int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.offer(t, to)
}

// offer is flush with mu held.
func (d *destination) offer(t *train, to int) {
	p := &d.progress
	if d.closed || d.skips {
		p.why = errRemoved
		return
	}
	for p.open(to) {
		most := to
		if d.reach.is != here {
			if most = d.trial(to); most == p.next {
				return
			}
		}
		p.clogged = false
		n, bytes, errno := d.way.now.send(d.socket.fd, t, p.next, most)
		switch {
		case errno == 0:
			p.next += n
			d.counters.sent(n, bytes)
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return
		case errno == unix.ECONNREFUSED: // the answer to an earlier packet; at the start of a train possibly an old one
			d.counters.refused.Add(1)
			d.answered(errno)
			if p.next > 0 || p.stale {
				d.giveUp(t, errno)
			}
			p.stale = true
			d.reap() // reads the same answers from the error queue
		case errno == unix.EHOSTUNREACH:
			d.counters.errors.Add(1)
			d.lose()
			d.reap()
			d.giveUp(t, errno)
		case d.way.fallBack(d.socket.fd, errno):
		case errno == unix.ENOBUFS: // some queue below the socket is full; treated like a full socket buffer
			d.counters.errors.Add(1)
			p.clogged = true
			return
		default:
			d.counters.errors.Add(1)
			d.reap()
			d.giveUp(t, errno)
		}
	}
}

// giveUp drops the rest of the train, for the reason why.
func (d *destination) giveUp(t *train, why unix.Errno) {
	d.progress.why = why
	d.counters.cut.Add(1)
	d.counters.dropped.Add(uint64(t.Len() - d.progress.next))
}

// pause ends the current train for the destination, and omits those that follow until begin is called.
func (d *destination) pause() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused, d.skips = true, true
}

// begin ends a pause with the next train. That train is sent even if the message that precedes it is still unsent.
func (d *destination) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused, d.fresh = false, true
}

// errRemoved is the reason for the end of a train to a destination that was removed or paused.
const errRemoved = unix.ESHUTDOWN

// left reports whether the destination was removed or paused during the train.
func (d *destination) left() bool { return d.progress.why == errRemoved }

// endTrain ends a train for a destination that has not left, and reports whether it failed. A receiver that is not
// listening does not count as a failure.
func (d *destination) endTrain() (failed bool) {
	why := d.progress.why
	if why == 0 {
		d.counters.frames.Add(1)
	}
	if why == 0 && !d.progress.stale {
		d.taken++
	}
	d.judge(why)
	if why != d.told {
		d.logState(why)
	}
	return why != 0 && why != unix.ECONNREFUSED
}

// judge records the result of a train.
func (d *destination) judge(why unix.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if why == 0 {
		d.got.sent(time.Now())
	} else {
		d.got.lost(why, time.Now())
	}
}

// answered records an answer of the network: that nobody listens, or that there is no such host. One that comes before a
// train's first packet concerns an earlier train.
func (d *destination) answered(why unix.Errno) {
	if why == unix.EHOSTUNREACH {
		d.lose()
	}
	d.got.refused(why)
	d.got.spoilt = d.progress.next > 0
}

// trouble returns why the destination gets no whole frames, and the remedy, or "".
func (d *destination) trouble() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return reason(d.got.trouble(time.Now()))
}

// logEvery is the minimum time between log messages about a destination, or about a reduced bit rate: a host without a
// receiver sends refusals for every other frame.
const logEvery = time.Minute

// logState records that the state of the destination has changed, and logs the change unless another one was logged
// less than logEvery ago.
func (d *destination) logState(why unix.Errno) {
	d.told = why
	last := reason(why)
	d.counters.fail(last)
	if time.Since(d.logged) < logEvery {
		return
	}
	d.logged = time.Now()
	switch {
	case why == 0:
		d.log.Info("rtp: destination gets whole frames again")
	case why == unix.ECONNREFUSED && d.taken < 2: // the host may refuse the first train after its end
		d.log.Info("rtp: nobody listens at the destination yet")
	default:
		d.log.Warn("rtp: destination loses frames", "error", last)
	}
}

// NobodyListens is the Trouble of a destination whose host refuses the packets.
const NobodyListens = "nothing is listening on this port: start a receiver there"

// reason returns why a train was given up, and the remedy, or "" for a whole train.
func reason(why unix.Errno) string {
	switch why {
	case 0:
		return ""
	case unix.ECONNREFUSED:
		return NobodyListens
	case unix.EAGAIN:
		return "the network takes packets too slowly: the rest of the frame was dropped"
	case unix.EHOSTUNREACH:
		return "no host answers at this address: is the receiver on, and in this network? See ip neigh"
	case unix.EMSGSIZE:
		return "packets are longer than the path allows: lower mtu, or reload the configuration where it is auto"
	}
	return why.Error()
}

// report sends an RTCP compound, if there is room for it in the socket. A failure is only counted, because another
// compound will follow. The caller must hold the transmitter's lock.
func (d *destination) report(b []byte) {
	if d.closed {
		return
	}
	told := false
	if d.line != nil {
		told = d.line.conn.writeRTCP(d.line.channel+1, b)
	} else {
		told = d.socket.rtcpSender.sendRTCP(b)
	}
	if !told {
		d.counters.errors.Add(1)
	}
}

// poll finds out which messages the kernel has finished with, and whether the host answers.
func (d *destination) poll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.reap()
	}
}

// reap is poll with mu held.
func (d *destination) reap() {
	if why := d.way.reap(d.socket.fd); why == unix.EHOSTUNREACH || why == unix.ECONNREFUSED {
		d.answered(why)
	}
}

// close frees the destination's resources. It waits for a burst in progress, after which none follows.
func (d *destination) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.way.zero != nil {
		d.way.zero.letGo()
	}
	if d.line != nil {
		return nil // the connection belongs to its owner
	}
	return d.socket.close()
}
