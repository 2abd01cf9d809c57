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
	"github.com/tegracast/tegracast/pipeline/monotonic"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// train is an rtp.Train being sent.
type train struct {
	*rtp.Train
	came      time.Duration // when the frame could be sent, by the monotonic clock; 0: when Send is called
	began     time.Duration // when its first packet was handed to the kernel, by the same clock
	departure time.Duration // of the latest burst, by the same clock
	filling   fillingFrame  // for a filling frame
	inFlight  atomic.Int32  // MSG_ZEROCOPY messages that the kernel has not finished with; until it has, the frame must be kept
}

// A transmitter sends trains to destinations, which share SSRC, sequence numbers and timestamps.
type transmitter struct {
	config     Config
	keyFrame   func() // requests a key frame: a picture that refers to no other
	control    *rtp.Compounds
	identity   identity
	adaptation *adaptation
	span       time.Duration // the most time over which the packets of a frame are spread; 0: no pacing
	patience   time.Duration // additional time for which a frame waits for room in full socket buffers
	grace      time.Duration // patience with the current frame
	pause      atomic.Int64  // maximum nanoseconds between two bursts of an encoded picture
	ready      bool          // trains are packet-ready
	buffer     int           // requested size of a socket buffer in bytes
	bits       float64       // bit rate of the stream on the wire; 0 if unknown

	mu       sync.Mutex // guards the next two fields, control, and changes of dests
	closed   bool
	reported time.Time
	dests    atomic.Pointer[[]*destination]
	turn     turn // turn in which trains are sent
	pacer    pacer
	period   time.Duration // of frames; 0 if unknown
	bucket   bucket
	first    pipeline.SignedHistogram // from the end of the frame's DMA to its first packet
	last     pipeline.Histogram       // from the end of the frame's DMA to its last packet
	sums     summing
	team     team
	hearing  sync.WaitGroup
}

const (
	paced   = 0.9  // part of the frame period over which packets are spread
	reserve = 0.05 // part reserved for packetizing; what remains is the grace period for slow destinations
)

// burstTime is the maximum time between two bursts of an encoded picture, which has few packets, unless an interface is slow
// (setDests). Spread over the frame period, the second of two bursts would leave half a period late. 16 packets a millisecond
// are 190 Mb/s.
const burstTime = time.Millisecond

// longestSpread is the maximum time over which one frame is sent, even at low frame rates, because the program can end
// only between two frames.
const longestSpread = time.Second

// fullPause is the pause before retrying when the socket, or a queue below it, is full.
const fullPause = 100 * time.Microsecond

// unpacedPatience is the maximum time for which a frame of a stream without a frame rate waits for room in full socket
// buffers.
const unpacedPatience = 100 * time.Millisecond

// newTransmitter returns a transmitter of trains like t, for frames of format f.
func newTransmitter(c Config, f pipeline.Format, t *train) *transmitter {
	x := &transmitter{
		config: c, keyFrame: func() {}, control: rtp.NewCompounds(*c.Start), patience: unpacedPatience, buffer: f.Size(), ready: t.Contiguous(),
		pacer: pacer{clock: monotonic.NewClock()}, adaptation: newAdaptation(c),
	}
	x.pacer.turn = &x.turn
	x.team.init(x)
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
	if c.Checksum && c.Payload == rtp.Raw { // other payloads are summed when they are packetized
		x.sums.start(x.turn.wake)
	}
	x.identity.ssrc.Store(c.Start.SSRC)
	x.setDests(nil)
	return x
}

// Add adds a destination. It may be called while trains are being sent.
func (x *transmitter) Add(dest Destination) error {
	d, err := x.open(dest, x.config)
	if err != nil {
		return err
	}
	if err := x.attach(d); err != nil {
		return err
	}
	x.warnLink(d)
	return nil
}

// Remove removes the destination that was added with this name or address. It may be called while trains are being
// sent.
func (x *transmitter) Remove(dest string) error {
	is := func(d *destination) bool { return d.reader == "" && (d.name == dest || d.socket.addr.String() == dest) }
	was, err := x.detach(is)
	if !was {
		return fmt.Errorf("%w: %s: the stream is not sent there", ErrDestination, dest)
	}
	return err
}

// Exchange replaces the destinations in gone by those in fresh. It may be called while trains are being sent. If one of
// fresh cannot be opened, or the stream is sent there already, nothing changes.
func (x *transmitter) Exchange(gone, fresh []Destination) error {
	var opened []*destination
	for _, to := range fresh {
		d, err := x.open(to, x.config)
		stays := func(o *destination) bool {
			return o.line == nil && o.socket.addr == to.Addr && !slices.ContainsFunc(gone, func(g Destination) bool { return g.Addr == to.Addr })
		}
		if err == nil && slices.ContainsFunc(*x.dests.Load(), stays) {
			err = errors.Join(fmt.Errorf("%w: %s: the stream is sent there already", ErrDestination, to.Name), d.close())
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
	for _, d := range gone { // first, because fresh may contain the same address under another name
		errs = append(errs, x.Remove(d.Addr.String()))
	}
	for _, d := range opened {
		errs = append(errs, x.attach(d))
	}
	for _, d := range opened {
		x.warnLink(d)
	}
	return errors.Join(errs...)
}

// warn logs foreseeable problems of d.
func (x *transmitter) warn(d *destination) {
	if d.socket.buffer < x.buffer {
		d.log.Warn("rtp: socket send buffer is small: packets may be dropped here",
			"bytes", d.socket.buffer, "wanted", x.buffer,
			"remedy", fmt.Sprintf("sysctl -w net.core.wmem_max=%d", x.buffer))
	}
}

// warnLink logs if the interface of d, which has been attached, is too slow for the stream to all destinations on it.
func (x *transmitter) warnLink(d *destination) {
	if w := checkLink(d.socket.link, d.socket.speed, x.bits*sharing(*x.dests.Load(), d)); w != "" {
		d.log.Warn("rtp: " + w)
	}
}

// sharing returns the number of destinations on the interface of d.
func sharing(dests []*destination, d *destination) (n float64) {
	for _, o := range dests {
		if o.socket.link == d.socket.link {
			n++
		}
	}
	return n
}

// setDests sets the destinations. Bursts of encoded pictures to those on one interface take at most half of its rate. The
// lock must be held.
func (x *transmitter) setDests(list []*destination) {
	x.dests.Store(&list)
	pause := float64(burstTime)
	for _, d := range list {
		if d.socket.speed > 0 {
			bits := 8 * float64(x.config.Burst*(x.config.MTU+wireOverhead)) * sharing(list, d)
			pause = max(pause, 2*bits/d.socket.speed*float64(time.Second))
		}
	}
	x.pause.Store(int64(pause))
}

// Send sends t to all destinations, paced, and then the RTCP packets about it. A destination whose socket buffer stays
// full falls behind without delaying the others, and loses the rest of the frame if it has not caught up at the end of
// the frame's time. Send reports whether all destinations failed; it returns false if there are none, or if the frame
// or the stream ended early. A destination added meanwhile gets the next train; one that is removed gets no more
// packets of this one.
func (x *transmitter) Send(t *train) (failed bool) {
	dests := x.adopt(t)
	if len(dests) == 0 {
		t.awaitEnd(&x.turn)
		return false
	}
	x.beginTrain(t, dests)
	err := x.play(t, dests)
	x.team.await()
	if err != nil {
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
	served, good := 0, 0
	for _, d := range dests {
		if d.left() {
			continue
		}
		served++
		if !d.endTrain() {
			good++
		}
	}
	failed = served > 0 && good == 0
	x.sums.await(&x.turn)
	x.report(t, dests)
	return failed
}

// beginTrain prepares the destinations and the schedule for t.
func (x *transmitter) beginTrain(t *train, dests []*destination) {
	for _, d := range dests {
		d.beginTrain(t)
	}
	x.team.begin(t, dests)
	now := x.pacer.now()
	if t.filling.frame != nil {
		x.grace = x.patience
		x.planSlices(t.Len(), now)
		return
	}
	x.plan(t.Len(), t.came, now)
}

// plan sets, at time now, the schedule of a frame of n packets that arrived at came. A frame that is late because it
// had to wait for the previous one is spread over the time left until the next one is due; otherwise all following
// frames would be equally late.
func (x *transmitter) plan(n int, came, now time.Duration) {
	if came == 0 {
		came = now
	}
	if x.period > 0 {
		x.bucket.set(n, x.period, x.config.Pacing)
	}
	bursts, most := (n+x.config.Burst-1)/x.config.Burst, x.span
	if x.config.Payload != rtp.Raw {
		most = min(most, time.Duration(bursts)*time.Duration(x.pause.Load()))
	}
	start, span := x.pacer.next(now), most
	if span > 0 {
		span = x.bucket.span(n, start, came+span, span)
	}
	x.pacer.beginFrame(start, bursts, span, most)
	x.grace = max(x.patience, came+x.span+x.patience-start-span) // as long as if the frame had been spread over x.span
}

// play hands the bursts of t to the destinations when they are due. The first burst is sent before the checksum is
// started, because waking its goroutine takes time. An error means that the frame turned out to be damaged, or that the
// stream has ended.
func (x *transmitter) play(t *train, dests []*destination) error {
	most := maxAhead
	for _, d := range dests {
		most = min(most, d.ahead())
	}
	for k, to := 0, 0; to < t.Len(); k++ {
		from := to
		to = min(from+x.step(k), t.Len())
		if t.filling.frame != nil {
			if t.waits(from) {
				x.team.give()
			}
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
		x.team.push(t, to, t.departure, most > 0)
		if from == 0 {
			t.began = x.pacer.now()
			x.sums.sumTrain(t)
		}
	}
	return nil
}

// step returns the number of packets to send after wait k. Without pacing, bursts follow one another anyway, so many
// are sent in one system call. The first burst is sent alone, because its time is measured.
func (x *transmitter) step(k int) int {
	if x.span == 0 && k > 0 {
		return max(volley*defaultBurst, x.config.Burst)
	}
	return x.config.Burst
}

// finish waits for the destinations that are behind, for at most grace in total, and gives up what is then unsent.
// Destinations that are lagging would delay the others frame after frame, so it waits for them only if all are lagging.
func (x *transmitter) finish(t *train, dests []*destination) {
	all := !slices.ContainsFunc(dests, func(d *destination) bool { return !d.lagging() && !d.left() })
	for until := x.pacer.now() + x.grace; ; {
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
			for _, d := range dests { // a notification may make room
				d.poll()
			}
			x.turn.until(now + max(fullPause, x.grace/16))
		}
		for _, d := range dests {
			if d.push(t, t.Len(), t.departure); last && d.progress.open(t.Len()) {
				d.giveUp(t, d.late())
			}
		}
	}
}

// reap finds out which trains the kernel has finished with.
func (x *transmitter) reap() {
	for _, d := range *x.dests.Load() {
		d.poll()
	}
}

// report sends a sender report with the checksum of t, if checksums are on, and the number of its group, if it has one.
// If it has neither, it sends a plain sender report instead, unless the previous one was less than rtp.ReportInterval
// ago.
func (x *transmitter) report(t *train, dests []*destination) {
	group := t.Group()
	if !x.config.Checksum && group.Number == 0 && time.Since(x.reported) < rtp.ReportInterval { // the sender is the only writer of reported
		return
	}
	x.sendReports(dests, func(b []byte) []byte {
		if x.config.Checksum {
			b = x.control.Checksum(b, t.Checksum())
		}
		if group.Number != 0 {
			b = x.control.Group(b, group)
		}
		return b
	})
}

// sendReports sends each destination a sender report, extended by add.
func (x *transmitter) sendReports(dests []*destination, add func([]byte) []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	x.reported = now
	for _, d := range dests {
		packets, octets := d.counters.reported()
		d.report(add(x.control.SenderReport(now, packets, octets)))
	}
}

// bye sends BYE to a destination. The caller must hold mu.
func (x *transmitter) bye(d *destination) {
	packets, octets := d.counters.reported()
	d.report(x.control.Bye(x.control.SenderReport(time.Now(), packets, octets)))
}

// Close sends BYE to the destinations and frees the sockets. Stats still returns the last counts.
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
	x.team.end()
	x.hearing.Wait()
	return errors.Join(errs...)
}
