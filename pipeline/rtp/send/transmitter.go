// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A train is one of package rtp on its way.
type train struct {
	*rtp.Train
	came      time.Duration // when the frame could be sent, by the monotonic clock; 0: when Send is called
	began     time.Duration // when its first packet was handed to the kernel, by the same clock
	departure time.Duration // of the packets that are sent now
	filling   filling       // of a frame that fills
	inFlight  atomic.Int32  // messages of MSG_ZEROCOPY that the kernel has not done with; until then the frame must stay
}

// A transmitter sends trains to destinations, which share SSRC, sequence numbers and timestamps.
type transmitter struct {
	config     Config
	keyFrame   func() // asks for a picture that refers to no other
	control    *rtp.Compounds
	identity   identity
	adaptation *adaptation
	span       time.Duration // over which the packets of a frame are spread; 0: not
	patience   time.Duration // for which a frame waits, after that, for full socket buffers
	ready      bool          // trains are packet-ready
	buffer     int           // bytes wanted of a socket buffer
	bits       float64       // of the stream on the wire, a second; 0: not known

	mu       sync.Mutex // of the next two, of control, and of dests when they change
	closed   bool
	reported time.Time
	dests    atomic.Pointer[[]*destination]
	turn     turn // in which trains are sent
	pacer    pacer
	period   time.Duration // of frames; 0: not known
	bucket   bucket
	first    pipeline.SignedHistogram // from the end of the frame's DMA to its first packet
	last     pipeline.Histogram       // and to its last
	sums     summing
	hearing  sync.WaitGroup
}

const (
	paced   = 0.9  // part of the frame period over which packets are spread; then comes the patience with who is late
	reserve = 0.05 // part of the frame period that is left for packetizing
)

// longestSpread bounds the time that one frame takes, however rare frames are: the program ends between two of them.
const longestSpread = time.Second

// fullPause is how long to wait for room in a socket that is full, or below it.
const fullPause = 100 * time.Microsecond

// unpacedPatience is how long a frame without pacing or rate waits for full socket buffers.
const unpacedPatience = 100 * time.Millisecond

// newTransmitter makes a transmitter of trains like t, for frames of format f.
func newTransmitter(c Config, f pipeline.Format, t *train) *transmitter {
	x := &transmitter{
		config: c, keyFrame: func() {}, control: rtp.NewCompounds(*c.Start), patience: unpacedPatience, buffer: f.Size(), ready: t.Contiguous(),
		pacer: pacer{clock: newClock()}, adaptation: newAdaptation(c),
	}
	x.pacer.turn = &x.turn
	if c.Payload == rtp.Results {
		x.buffer = rtp.MaxResults
	}
	if f.Rate.Num > 0 {
		period := time.Duration(float64(time.Second) * float64(f.Rate.Den) / float64(f.Rate.Num))
		spread := min(period, longestSpread)
		x.patience = time.Duration((1 - reserve) * float64(spread))
		x.period = period
		x.bits = 8 * float64(t.Bytes()+t.Len()*wireOverhead) / period.Seconds()
		if c.Pacing != PaceBurst {
			x.span = time.Duration(paced * float64(spread))
			x.patience -= x.span
			x.buffer = 8 * c.Burst * c.MTU
		}
	}
	if c.Checksum && c.Payload == rtp.Raw { // others are summed where their bytes are written
		x.sums.start(x.turn.wake)
	}
	x.identity.ssrc.Store(c.Start.SSRC)
	x.dests.Store(&[]*destination{})
	return x
}

// Add adds a destination. It may be called while trains are sent.
func (x *transmitter) Add(dest Destination) error {
	d, err := x.open(dest, x.config)
	if err != nil {
		return err
	}
	return x.attach(d)
}

// Remove removes the destination that was added by that name or address. It may be called while trains are sent.
func (x *transmitter) Remove(dest string) error {
	is := func(d *destination) bool { return d.reader == "" && (d.name == dest || d.socket.addr.String() == dest) }
	was, err := x.detach(is)
	if !was {
		return fmt.Errorf("%w: %s: is not sent to", ErrDestination, dest)
	}
	return err
}

// Exchange adds what fresh names and removes what gone names, which are sent to. It may be called while trains are sent. When one of fresh cannot
// be sent to, nothing has changed.
func (x *transmitter) Exchange(gone, fresh []Destination) error {
	var opened []*destination
	for _, to := range fresh {
		d, err := x.open(to, x.config)
		stays := func(o *destination) bool {
			return o.line == nil && o.socket.addr == to.Addr && !slices.ContainsFunc(gone, func(g Destination) bool { return g.Addr == to.Addr })
		}
		if err == nil && slices.ContainsFunc(*x.dests.Load(), stays) {
			err = errors.Join(fmt.Errorf("%w: %s: is sent to already", ErrDestination, to.Name), d.close())
		}
		if err != nil {
			for _, d := range opened {
				err = errors.Join(err, d.close())
			}
			return err
		}
		opened = append(opened, d)
	}
	var errs []error
	for _, d := range gone { // first, as fresh may have the same address under another name
		errs = append(errs, x.Remove(d.Addr.String()))
	}
	for _, d := range opened {
		errs = append(errs, x.attach(d))
	}
	return errors.Join(errs...)
}

// warn logs what will not go well with d.
func (x *transmitter) warn(d *destination) {
	if d.socket.buffer < x.buffer {
		d.log.Warn("rtp: socket send buffer is small: packets may be dropped here",
			"bytes", d.socket.buffer, "wanted", x.buffer,
			"remedy", fmt.Sprintf("sysctl -w net.core.wmem_max=%d", x.buffer))
	}
	if w := checkLink("/sys", d.socket.link, x.bits); w != "" {
		d.log.Warn("rtp: " + w)
	}
}

// Send sends t to all destinations, paced, and then what RTCP has to tell about it. A destination whose socket buffer
// stays full falls behind by itself, and loses the rest of the frame when it has not caught up at its end. Send reports
// whether all destinations failed. One that is added meanwhile gets the next train, one that is removed the rest of no train.
func (x *transmitter) Send(t *train) (failed bool) {
	dests := x.adopt(t)
	if len(dests) == 0 {
		t.awaitEnd(&x.turn)
		return false
	}
	x.begin(t, dests)
	if err := x.play(t, dests); err != nil {
		x.abandon(t, dests, err)
		x.sums.await(&x.turn)
		return false
	}
	x.finish(t, dests)
	if done := t.Done(); !done.IsZero() {
		since, now := time.Since(done), x.pacer.now()
		x.first.Observe(since - (now - t.began))
		x.last.Observe(since + max(0, t.departure-now))
	}
	failed = true
	for _, d := range dests {
		if !d.end() {
			failed = false
		}
	}
	x.sums.await(&x.turn)
	x.report(t, dests)
	return failed
}

// begin prepares for t.
func (x *transmitter) begin(t *train, dests []*destination) {
	for _, d := range dests {
		d.begin(t)
	}
	now := x.pacer.now()
	if t.filling.frame != nil {
		x.planSlices(t.Len(), now)
		return
	}
	x.plan(t.Len(), t.came, now)
}

// plan sets the schedule of a frame of n packets that came at came, seen at now. A frame that is late, since it had to wait
// for the one before, has the time that is left until the next one comes: else each would be as late as this one.
func (x *transmitter) plan(n int, came, now time.Duration) {
	if came == 0 {
		came = now
	}
	if x.period > 0 {
		x.bucket.set(n, x.period, x.config.Pacing)
	}
	start, span := x.pacer.next(now), x.span
	if span > 0 {
		span = x.bucket.span(n, start, came+span, span)
	}
	x.pacer.begin(start, (n+x.config.Burst-1)/x.config.Burst, span, x.span)
}

// play hands the bursts of t to the destinations when they are due. The first one leaves before the checksum is begun:
// to wake its goroutine takes time. An error is of a frame that turned out to be damaged while it was sent.
func (x *transmitter) play(t *train, dests []*destination) error {
	most := maxAhead
	for _, d := range dests {
		most = min(most, d.ahead())
	}
	for k, to := 0, 0; to < t.Len(); k++ {
		from := to
		to = min(from+x.step(k), t.Len())
		if t.filling.frame != nil {
			there, err := t.await(from, &x.turn)
			if err != nil {
				return err
			}
			to, k = min(to, there), from/x.config.Burst
		}
		x.delay(k, to-from, x.pacer.now(), t.filling.waited)
		x.hasten(t, from)
		if most > 0 {
			t.departure = x.pacer.ahead(k, most)
		} else {
			x.pacer.wait(k)
			t.departure = x.pacer.now()
		}
		x.bucket.add(to-from, t.departure)
		for _, d := range dests {
			d.push(t, to)
		}
		if from == 0 {
			t.began = x.pacer.now()
			x.sums.begin(t)
		}
	}
	return nil
}

// step is how many packets leave after wait k. Without pacing bursts follow one another anyway, and many go in a call of
// the kernel; the first goes alone, since its time is taken.
func (x *transmitter) step(k int) int {
	if x.span == 0 && k > 0 {
		return volley * x.config.Burst
	}
	return x.config.Burst
}

// finish waits for the destinations that are behind, all together for no longer than the patience. Nobody waits for one
// whose last frame was cut, unless that is true of all: it would hold up the others frame after frame.
func (x *transmitter) finish(t *train, dests []*destination) {
	all := !slices.ContainsFunc(dests, func(d *destination) bool { return !d.lagging() })
	for until := x.pacer.now() + x.patience; ; {
		open, wait := false, false
		for _, d := range dests {
			if d.progress.open(t.Len()) {
				open, wait = true, wait || all || !d.lagging()
			}
		}
		if !open {
			return
		}
		now := x.pacer.now()
		last := !wait || now >= until
		if !last {
			for _, d := range dests { // a note may say that there is room
				d.poll()
			}
			x.turn.until(now + fullPause)
		}
		for _, d := range dests {
			if d.push(t, t.Len()); last && d.progress.open(t.Len()) {
				d.giveUp(t, d.late())
			}
		}
	}
}

// reap learns which trains the kernel has let go of.
func (x *transmitter) reap() {
	for _, d := range *x.dests.Load() {
		d.poll()
	}
}

// report sends the checksum of t, or every second a bare sender report.
func (x *transmitter) report(t *train, dests []*destination) {
	if !x.config.Checksum && time.Since(x.reported) < rtp.ReportInterval { // nobody else writes it
		return
	}
	x.tell(dests, func(b []byte) []byte {
		if !x.config.Checksum {
			return b
		}
		return x.control.Checksum(b, t.Checksum())
	})
}

// tell sends each destination a sender report and what add appends to it.
func (x *transmitter) tell(dests []*destination, add func([]byte) []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	x.reported = now
	for _, d := range dests {
		packets, octets := d.counters.reported()
		d.report(add(x.control.SenderReport(now, packets, octets)))
	}
}

// bye ends the stream for a destination. mu is held.
func (x *transmitter) bye(d *destination) {
	packets, octets := d.counters.reported()
	d.report(x.control.Bye(x.control.SenderReport(time.Now(), packets, octets)))
}

// Close says goodbye to the destinations and frees the sockets. Stats keeps the last counts.
func (x *transmitter) Close() error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return nil
	}
	x.closed = true
	var errs []error
	for _, d := range *x.dests.Load() {
		x.bye(d)
		errs = append(errs, d.close())
	}
	x.mu.Unlock()
	x.sums.end()
	x.hearing.Wait()
	return errors.Join(errs...)
}
