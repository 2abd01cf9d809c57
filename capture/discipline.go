// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/pipeline"
)

// A TimeSource is a clock that the counter of a card can follow.
type TimeSource interface {
	// Read returns the clock's time, in ns since 1970 of its scale, and the time on this machine, plus or minus unsure, at
	// which it had that.
	Read() (ns int64, at time.Time, unsure time.Duration, err error)
	Close() error
}

// DisciplineConfig configures a Discipline.
type DisciplineConfig struct {
	Name   string                     // of the clock, for reports: phc: and a device file, or system
	Open   func() (TimeSource, error) // called again after an error of the clock
	Ahead  time.Duration              // of the clock's scale before UTC
	PTP    bool                       // the clock is that of a network adapter
	Logger *slog.Logger               // nil: slog.Default()
}

// A Discipline makes the timestamp counter of a card follow another clock, by TIME_STEP and TIME_RATE
// (docs/fpga-interface.md). It reads both once a second. Before cameras run the counter is stepped either way, later
// only ahead, and only if it is far behind; else it is made faster or slower, so that the times of frames never go back.
// It changes no clock of this machine.
type Discipline struct {
	cfg    DisciplineConfig
	card   *Card
	cancel context.CancelFunc
	ended  chan struct{}
	first  chan struct{} // closed after the first look

	source TimeSource // nil: not open; used by Run alone

	mu     sync.Mutex // guards the next fields; held while the counter is looked at
	closed bool
	block  *fpga.Camera
	servo  servo
	set    bool // the counter has the time of the clock
	mark   pair // a value of the counter, after it was set
	rate   int32
	steps  uint64
	told   pipeline.ClockState
	far    bool // it was logged that the counter is far ahead
	faults pipeline.FaultLog

	records sync.Mutex    // guards unsaid; nothing is waited for while it is held
	unsaid  []func()      // what say logs
	wake    chan struct{} // there is something to say
	over    chan struct{} // closed when nothing more will be said
	silent  chan struct{} // closed when everything was said

	latest atomic.Pointer[madeReport]
}

type madeReport struct {
	pipeline.ClockReport
	made time.Time
}

// firstLook and lastLook limit the waits of Follow and Close for a clock that does not answer.
const (
	firstLook = time.Second
	lastLook  = time.Second
)

// Follow makes the card's timestamp counter follow a clock, until the Discipline is closed. It must be called before the
// card's cameras are opened, whose frames then have Times.Reference. It fails for no reason: what cannot be done is
// logged, reported and tried again.
func (c *Card) Follow(cfg DisciplineConfig) *Discipline {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Discipline{
		cfg: cfg, card: c, cancel: cancel, ended: make(chan struct{}), first: make(chan struct{}),
		wake: make(chan struct{}, 1), over: make(chan struct{}), silent: make(chan struct{}),
	}
	d.tell(pipeline.ClockReport{State: pipeline.ClockWaiting})
	c.discipline.Store(d)
	go d.run(ctx)
	go d.speak()
	select {
	case <-d.first:
	case <-time.After(firstLook):
	}
	return d
}

// Close ends the Discipline, and leaves the counter at the rate of its crystal. It returns an error if the clock does not
// answer; the card's registers are no longer accessed all the same.
func (d *Discipline) Close() error {
	d.cancel()
	d.card.discipline.Store(nil)
	d.mu.Lock()
	d.settle()
	if !d.closed {
		d.closed = true
		close(d.over)
	}
	d.mu.Unlock()
	limit := time.After(lastLook)
	select {
	case <-d.ended:
	case <-limit:
		return fmt.Errorf("the clock %s does not answer: it is left to the end of the process", d.cfg.Name)
	}
	select {
	case <-d.silent:
	case <-limit: // the log takes nothing, which it cannot be told
	}
	return nil
}

// Report returns the state of the clock that the card's counter follows, as far as it is known now, or nil if it
// follows none.
func (c *Card) Report(now time.Time) *pipeline.ClockReport {
	d := c.discipline.Load()
	if d == nil {
		return nil
	}
	latest := d.latest.Load()
	if r := latest.Current(latest.made, now); r.State != latest.State {
		return &r
	}
	return &latest.ClockReport
}

func (d *Discipline) run(ctx context.Context) {
	defer close(d.ended)
	defer d.closeSource()
	tick := time.NewTicker(pairEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n == 0 || d.card.open.Load() > 0 {
			now, err := d.read()
			if ctx.Err() != nil {
				return
			}
			d.look(now, err)
		} else {
			d.rest()
		}
		if n == 0 {
			close(d.first)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// speak logs what there is to say, until Close. A log that takes nothing stops nothing else.
func (d *Discipline) speak() {
	defer close(d.silent)
	for {
		select { // ends: Close closes over
		case <-d.wake:
			d.say()
		case <-d.over:
			d.say()
			return
		}
	}
}

func (d *Discipline) closeSource() {
	if d.source != nil {
		_ = d.source.Close()
		d.source = nil
	}
}

// read reads the clock, as a pair whose fpga is the clock's time.
func (d *Discipline) read() (p pair, err error) {
	if d.source == nil {
		if d.source, err = d.cfg.Open(); err != nil {
			d.source = nil
			return pair{}, err
		}
	}
	ns, at, unsure, err := d.source.Read()
	if err != nil {
		d.closeSource()
		return pair{}, err
	}
	if ns < longAgo {
		return pair{}, fmt.Errorf("%s has a time of %d, as if nobody had set it: set it, for instance by ptp4l", d.cfg.Name, time.Unix(0, ns).UTC().Year())
	}
	return pair{at, uint64(ns), unsure}, nil
}

// longAgo is a time, in ns since 1970, before which no clock is set: one that nobody has set may count from 1970.
const longAgo = 10 * 365 * 24 * int64(time.Hour)

// errNotSet means that the FPGA's counter cannot be set.
var errNotSet = errors.New("the FPGA's counter cannot be set")

// openBlock finds the registers of the counter.
func (d *Discipline) openBlock() error {
	if d.block != nil {
		return nil
	}
	err := error(fpga.ErrNoCamera)
	for _, bar := range d.card.BARs {
		var block *fpga.Camera
		if block, err = fpga.OpenCameraBlock(bar.Registers, 0); err != nil {
			continue
		}
		if info := block.Info(); info.Caps&fpga.CapTimeSet == 0 {
			return fmt.Errorf("%w: its interface %d.%d has no capability bit 7, which came with 1.3: update the design, or leave clock out",
				errNotSet, info.Major, info.Minor)
		}
		d.block = block
		return nil
	}
	return err
}

// look compares the counter with the clock, whose time is source, and changes the counter. If the clock could not be
// read, because of err, it only makes up for a counter that has begun again.
func (d *Discipline) look(source pair, err error) {
	d.withCounter(func(counter pair, jumped bool) {
		if err != nil {
			d.hold(counter, jumped)
			d.lost(err)
			return
		}
		d.follow(counter, source, jumped)
	})
}

// mend sets a counter that has begun again to what it would have now. It is called for a new session, and when a frame's
// times do not fit.
func (d *Discipline) mend() {
	d.withCounter(func(counter pair, jumped bool) {
		if jumped && d.set {
			d.servo.good = 0
			d.restore(counter)
		}
	})
}

// withCounter calls do with a reading of the counter, and whether it has jumped.
func (d *Discipline) withCounter(do func(counter pair, jumped bool)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.withLocked(do)
}

// withLocked is withCounter. The lock must be held.
func (d *Discipline) withLocked(do func(counter pair, jumped bool)) {
	if d.closed {
		return
	}
	if !d.card.resetting.TryLock() { // no register of a function that is being reset is read
		d.lost(nil)
		return
	}
	defer d.card.resetting.Unlock()
	if err := d.openBlock(); err != nil {
		d.lost(err)
		return
	}
	clock := &d.card.clock
	clock.reading.Lock()
	defer clock.reading.Unlock()
	counter, jumped := clock.update(d.block.Timestamp, false)
	if counter.fpga == gone {
		d.block = nil
		d.lost(fpga.ErrCameraGone)
		return
	}
	d.rate = d.block.TimeRate() // 0 after a reset
	do(counter, jumped || d.set && !clock.isSet())
}

// follow moves the counter to the clock.
func (d *Discipline) follow(counter, source pair, jumped bool) {
	now := source.fpga + uint64(counter.host.Sub(source.host)) // the clock's time when the counter was read
	s := offsetReading{time.Duration(counter.fpga - now), counter.half + source.half, counter.host}
	late := !d.set && d.card.running.Load() > 0
	begin := d.begin(counter, late)
	begun := s
	begun.offset += begin
	step, believed := d.servo.next(begun, !d.set && !late, jumped)
	step += begin
	if !believed {
		d.fault(fmt.Errorf("the counter is suddenly %v ahead: waiting for the next reading", s.offset))
		d.tell(pipeline.ClockReport{State: pipeline.ClockHoldover})
		return
	}
	if floor := d.floor(counter.host); d.set && step > 0 && counter.fpga+uint64(step) < floor {
		step = time.Duration(floor - counter.fpga)
	}
	d.set = true
	d.change(step)
	d.mark = pair{host: counter.host, fpga: counter.fpga + uint64(step)}
	d.warn(s.offset, step)
	offset := s.offset + step
	d.tell(pipeline.ClockReport{State: d.servo.state(), Offset: &offset})
}

// begin returns by how much the counter is stepped because the clock comes late, when cameras run: it must not be behind
// this machine's time, which their frames have had until now.
func (d *Discipline) begin(counter pair, late bool) (step time.Duration) {
	if !late {
		return 0
	}
	machine := counter.host.UnixNano() + int64(d.cfg.Ahead) // by the scale of the clock
	return max(0, time.Duration(machine-int64(counter.fpga)))
}

// floor returns what the counter must not be behind at time t: what it has had, and the time since.
func (d *Discipline) floor(t time.Time) uint64 { return d.mark.fpga + uint64(t.Sub(d.mark.host)) }

// hold lets the counter go on without the clock's time. Before cameras run, a counter that has never been set begins at a
// second, so that later steps are steps ahead.
func (d *Discipline) hold(counter pair, jumped bool) {
	d.servo.lost()
	switch {
	case !d.set && d.card.running.Load() == 0:
		d.change(time.Second - time.Duration(counter.fpga))
	case d.set:
		d.restore(counter)
	}
}

// restore sets a counter that has begun again to what it would have now.
func (d *Discipline) restore(counter pair) {
	floor := d.floor(counter.host)
	step := time.Duration(0)
	if behind := time.Duration(floor - counter.fpga); behind > stepAhead {
		step = behind
	}
	d.change(step)
	d.warn(-step, step)
	d.mark = pair{host: counter.host, fpga: counter.fpga + uint64(step)}
}

// settle takes back what the servo has added to the rate for the latest offset, since no reading follows that would do
// so. The lock must be held.
func (d *Discipline) settle() {
	if d.set && d.block != nil && d.rate != int32(math.Round(d.servo.crystal)) {
		d.withLocked(d.hold)
	}
}

// settleStale is settle if no reading has come for long, as while the clock does not answer. Frames call it.
func (d *Discipline) settleStale(now time.Time) {
	if now.Sub(d.latest.Load().made) < settleAfter || !d.mu.TryLock() {
		return
	}
	defer d.mu.Unlock()
	d.settle()
}

// settleAfter is the time without a reading after which the counter must not go on with what was meant for one second.
const settleAfter = 3 * pairEvery

// change steps the counter, and gives it the servo's rate. clock.reading must be held.
func (d *Discipline) change(step time.Duration) {
	rate := int32(math.Round(d.servo.rate))
	clock := &d.card.clock
	clock.alter(func() change {
		a := change{upto: d.block.Timestamp(), by: uint64(step), rate: float64(rate-d.rate) / 1e9}
		if rate != d.rate {
			d.block.SetTimeRate(rate)
		}
		if step != 0 {
			d.block.StepTime(step)
			a.upto = d.block.Timestamp() - uint64(step) // at the step, or after it; what follows has at least step more
		}
		clock.utc, clock.ahead = d.set, d.cfg.Ahead
		return a
	})
	if d.rate = rate; step != 0 && d.set {
		d.steps++
	}
}

// warn logs a step, and that the counter is so far ahead that it takes long to come back.
func (d *Discipline) warn(offset, step time.Duration) {
	if step != 0 {
		d.log(slog.LevelWarn, "the cameras' clock was stepped", "by", step)
	}
	far := offset+step > stepAhead
	if far && !d.far {
		d.log(slog.LevelWarn, "the cameras' clock is ahead, as if the other one had been set back, or was behind this machine's when it came: "+
			"it goes slower until they agree, by 1 ms a second; a restart of tegracast steps it", "ahead", offset+step)
	}
	d.far = far
}

// lost reports that nothing could be measured because of err; nil: it is no fault.
func (d *Discipline) lost(err error) {
	state := pipeline.ClockWaiting
	switch {
	case errors.Is(err, errNotSet):
		state = pipeline.ClockUnsupported
	case d.set:
		state = pipeline.ClockHoldover
	}
	d.servo.lost()
	d.tell(pipeline.ClockReport{State: state})
	if err != nil {
		d.fault(err)
	}
}

// rest reports that no camera of the card is open.
func (d *Discipline) rest() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settle()
	d.lost(nil)
}

// fault logs an error, unless it recurs.
func (d *Discipline) fault(err error) {
	if left, due := d.faults.Due("", time.Now()); due {
		d.log(slog.LevelWarn, "the cameras' clock follows nothing", pipeline.Unlogged([]any{"fault", err}, left)...)
	}
}

// tell publishes a report, and logs a change of the state.
func (d *Discipline) tell(r pipeline.ClockReport) {
	r.Source, r.Rate, r.Steps, r.Ahead, r.PTP = d.cfg.Name, int(d.rate), d.steps, d.cfg.Ahead, d.cfg.PTP
	d.latest.Store(&madeReport{r, time.Now()})
	if d.told != r.State {
		d.told = r.State
		d.log(slog.LevelInfo, "the cameras' clock: "+string(r.State), "rate_ppb", r.Rate)
	}
}

// mostUnsaid is the number of records that wait for a log. The later ones are lost if it takes nothing.
const mostUnsaid = 16

// log has say log a record: frames wait for mu, which may be held, and must not wait for a log that takes nothing.
func (d *Discipline) log(level slog.Level, text string, fields ...any) {
	d.records.Lock()
	if len(d.unsaid) < mostUnsaid {
		d.unsaid = append(d.unsaid, func() {
			d.cfg.Logger.Log(context.Background(), level, text, append([]any{"clock", d.cfg.Name}, fields...)...)
		})
	}
	d.records.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// say logs what log was given.
func (d *Discipline) say() {
	d.records.Lock()
	list := d.unsaid
	d.unsaid = nil
	d.records.Unlock()
	for _, log := range list {
		log()
	}
}
