// SPDX-License-Identifier: Apache-2.0

package send

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A destination is where one copy of the stream goes.
type destination struct {
	name     string       // as configured, or the reader's address
	reader   string       // how the reader has asked for the stream; empty: it is configured
	line     *interleaved // for a reader's connection; nil: UDP
	counters counters
	progress progress

	mu     sync.Mutex // held for what one burst takes, of what follows
	socket socket
	way    way
	reach  reach
	closed bool // written with the transmitter's lock held, too

	log    *slog.Logger
	told   unix.Errno // for which the train was given up that the log was told of last; 0: none
	logged time.Time  // when that was
}

// progress is how far the train under way has come.
type progress struct {
	next    int        // packet
	clogged bool       // for want of buffers below the socket
	stale   bool       // a refusal before the train's first packet has been seen
	why     unix.Errno // for which the rest of the train was given up
}

// open says whether packets before to are still to be sent.
func (p *progress) open(to int) bool { return p.why == 0 && p.next < to }

// newDestination opens the sockets. ready says that trains are packet-ready.
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

// begin starts a new train.
func (d *destination) begin(t *train) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.progress = progress{}
	if d.closed {
		return
	}
	d.way.begin(d.way.kind != ZeroCopy || d.leaves())
	if d.line != nil && d.line.late(t) {
		d.giveUp(t, unix.EAGAIN)
	}
}

// lagging says whether the train before was cut because the socket buffer stayed full, or the destination is away.
func (d *destination) lagging() bool { return d.told == unix.EAGAIN || d.late() == unix.EHOSTUNREACH }

// late is why a train is given up of which packets are left.
func (d *destination) late() unix.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reach.is != here {
		return unix.EHOSTUNREACH
	}
	return unix.EAGAIN
}

// ahead returns how many bursts the kernel may keep until their time.
func (d *destination) ahead() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.way.ahead
}

// push sends up to packet to, until the socket buffer is full.
func (d *destination) push(t *train, to int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &d.progress
	if d.closed {
		p.why = errRemoved
		return
	}
	if d.line != nil {
		to = d.line.portion(t, p.next, to)
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
		case errno == unix.ECONNREFUSED: // the answer to an earlier packet; at a train's start that may be long ago
			d.counters.refused.Add(1)
			if p.next > 0 || p.stale {
				d.giveUp(t, errno)
			}
			p.stale = true
			d.reap() // the same answers, in full
		case errno == unix.EHOSTUNREACH:
			d.counters.errors.Add(1)
			d.lose()
			d.reap()
			d.giveUp(t, errno)
		case d.way.fallBack(d.socket.fd, errno):
		case errno == unix.ENOBUFS: // full somewhere below: as a socket buffer that is full
			d.counters.errors.Add(1)
			p.clogged = true
			return
		default:
			d.counters.errors.Add(1)
			d.giveUp(t, errno)
		}
	}
}

// giveUp drops the rest of the train.
func (d *destination) giveUp(t *train, why unix.Errno) {
	d.progress.why = why
	d.counters.cut.Add(1)
	d.counters.dropped.Add(uint64(t.Len() - d.progress.next))
}

// errRemoved is why a train ends for a destination that was removed while it was sent.
const errRemoved = unix.ESHUTDOWN

// end ends a train and reports whether it failed. Nobody listening is no failure of the stream.
func (d *destination) end() (failed bool) {
	why := d.progress.why
	if why == errRemoved {
		return false
	}
	if why == 0 {
		d.counters.frames.Add(1)
	}
	if why != d.told {
		d.tell(why)
	}
	return why != 0 && why != unix.ECONNREFUSED
}

// tellEvery is how often the log hears of a destination: a receiver that is away answers every other frame.
const tellEvery = time.Minute

// tell notes that the state of the destination has changed, and logs it if it has not just been logged.
func (d *destination) tell(why unix.Errno) {
	d.told = why
	last := reason(why)
	d.counters.fail(last)
	if time.Since(d.logged) < tellEvery {
		return
	}
	d.logged = time.Now()
	if why == 0 {
		d.log.Info("rtp: destination gets whole frames again")
	} else {
		d.log.Warn("rtp: destination loses frames", "error", last)
	}
}

// NobodyListens is the LastError of a destination whose host answers so.
const NobodyListens = "no receiver listens on this port: start one"

// reason says for which a train was given up, and the remedy; "" for a whole one.
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

// report sends an RTCP compound, if there is room for it in the socket. A failure is counted and does no harm: the next one comes.
// The transmitter's lock is held.
func (d *destination) report(b []byte) {
	if d.closed {
		return
	}
	told := false
	if d.line != nil {
		told = d.line.conn.tell(d.line.channel+1, b)
	} else {
		told = d.socket.teller.tell(b)
	}
	if !told {
		d.counters.errors.Add(1)
	}
}

// poll learns what the kernel has let go of, and whether the host is there.
func (d *destination) poll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.reap()
	}
}

// reap is poll with mu held.
func (d *destination) reap() {
	if d.way.reap(d.socket.fd) == unix.EHOSTUNREACH {
		d.lose()
	}
}

// close frees what the destination has. It waits for a burst that is handed over, and none follows.
func (d *destination) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.way.zero != nil {
		d.way.zero.letGo()
	}
	if d.line != nil {
		return nil // the connection is its owner's
	}
	return d.socket.close()
}
