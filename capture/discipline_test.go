// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
)

// leader is a clock to follow. It is off by ppm from this machine's, and jumps when its time is changed.
type leader struct {
	start time.Time
	ppm   float64
	rng   *rand.Rand

	mu    sync.Mutex
	zero  int64 // ns at start
	gone  error
	opens int
	late  time.Duration // of a reading
}

// jump sets the clock ahead, or back.
func (l *leader) jump(by int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.zero += by
}

// fail makes the clock fail, or answer again; and each answer late.
func (l *leader) fail(gone error, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone, l.late = gone, late
}

// open counts an attempt to open the clock.
func (l *leader) open() (TimeSource, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opens++
	return l, l.gone
}

func (l *leader) state() (late time.Duration, opens int, gone error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late, l.opens, l.gone
}

const tai = 37 * time.Second

func (l *leader) now(t time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := t.Sub(l.start)
	return l.zero + int64(since) + int64(float64(since)*l.ppm*1e-6)
}

func (l *leader) Read() (int64, time.Time, time.Duration, error) {
	late, _, gone := l.state()
	if gone != nil {
		return 0, time.Time{}, 0, gone
	}
	time.Sleep(late)
	before := time.Now()
	time.Sleep(time.Duration(l.rng.ExpFloat64() * 500))
	ns := l.now(time.Now())
	time.Sleep(time.Duration(l.rng.ExpFloat64() * 500))
	half := time.Since(before) / 2
	return ns, before.Add(half), half, nil
}

func (*leader) Close() error { return nil }

// distantRegisters takes its time for each access, as PCI Express does.
type distantRegisters struct {
	fpga.Registers
	rng *rand.Rand
}

func (r distantRegisters) wait() { time.Sleep(time.Duration(300 + r.rng.ExpFloat64()*700)) }

func (r distantRegisters) Read32(off uint32) uint32 {
	r.wait()
	v := r.Registers.Read32(off)
	r.wait()
	return v
}

func (r distantRegisters) Write32(off, v uint32) {
	r.wait()
	r.Registers.Write32(off, v)
	r.wait()
}

// follower is a card with the model's counter, which follows a leader, in virtual time.
type follower struct {
	t      *testing.T
	leader *leader
	device *model.Device
	card   *Card
	d      *Discipline
	rng    *rand.Rand

	last    time.Time // the latest reference time of an exposure
	shown   time.Time // the latest time of an exposure that others than this machine get
	exposed uint64    // and what the counter read
	frames  []frame   // exposures whose frames are still on their way
	unsure  bool      // the counter has jumped: this machine's times are wrong until the next reading
	log     lockedBuffer
}

// frame is the start of an exposure: by the counter, and when it was.
type frame struct {
	start uint64
	at    time.Time
}

func newFollower(t *testing.T, ppm float64) *follower {
	sensor, err := model.NewSensor(model.TestChartSensor())
	if err != nil {
		t.Fatal(err)
	}
	cfg := model.Camera(noBus{}, sensor)
	cfg.ClockPPM = ppm
	device, err := model.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, device: device, rng: rand.New(rand.NewPCG(3, uint64(ppm+1000)))}
	bars := device.BARs()
	for i := range bars {
		bars[i].Registers = distantRegisters{bars[i].Registers, rand.New(rand.NewPCG(5, uint64(i)))}
	}
	f.card = NewCard(Hardware{BARs: bars})
	f.leader = &leader{start: time.Now(), zero: 1_800_000_000_123_456_789, ppm: 3, rng: rand.New(rand.NewPCG(4, 4))}
	return f
}

type noBus struct{}

func (noBus) Read(uint64, []byte) error  { return errors.New("no memory") }
func (noBus) Write(uint64, []byte) error { return errors.New("no memory") }

// follow starts the discipline, and opens a camera which then runs.
func (f *follower) follow() {
	f.followWith(&f.log)
}

func (f *follower) followWith(log io.Writer) {
	f.d = f.card.Follow(DisciplineConfig{
		Name: "phc:/dev/ptp0", Ahead: tai, PTP: true, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Open: f.leader.open,
	})
	f.cameras(1)
}

// cameras sets the number of cameras that are open and run.
func (f *follower) cameras(n int32) {
	f.card.open.Store(n)
	f.card.running.Store(n)
}

// glitch moves the counter behind its driver's back.
func (f *follower) glitch(by time.Duration) {
	f.unsure = true
	f.device.StepClock(by)
}

// counter reads the model's counter at once.
func (f *follower) counter() uint64 { return f.block().Timestamp() }

// block returns the model's registers of the counter, which can be accessed at once.
func (f *follower) block() *fpga.Camera {
	for _, bar := range f.device.BARs() {
		if block, err := fpga.OpenCameraBlock(bar.Registers, 0); err == nil {
			return block
		}
	}
	f.t.Fatal("no camera block")
	return nil
}

// run takes an exposure each 25 ms, whose frames come 50 to 150 ms later. Their times must never go back, neither by the
// clock that is followed nor by this machine's.
func (f *follower) run(d time.Duration) {
	f.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(25 * time.Millisecond) {
		f.frames = append(f.frames, frame{f.counter(), time.Now()})
		if len(f.frames) < 2+f.rng.IntN(5) {
			continue
		}
		x := f.frames[0]
		f.frames = f.frames[1:]
		f.card.mapTime(f.counter, x.start < f.exposed) // as session.mapTime
		f.exposed = x.start
		at := f.card.clock.Reference(x.start)
		switch {
		case at.IsZero() && !f.last.IsZero():
			f.t.Error("an exposure has no time")
		case !at.IsZero() && !at.After(f.last):
			f.t.Errorf("an exposure is from %v, the one before from %v: it went back by %v", at, f.last, f.last.Sub(at))
		}
		f.last = at
		mapped, unsure := f.card.clock.At(x.start)
		if at.IsZero() {
			at = mapped.Round(0)
		}
		if !at.After(f.shown) && !f.unsure {
			f.t.Errorf("an exposure is shown as from %v, the one before as from %v: it went back by %v", at, f.shown, f.shown.Sub(at))
		}
		f.shown = at
		if mapped.Sub(x.at).Abs() > unsure && !f.unsure {
			f.t.Errorf("an exposure of %v is from %v by this machine, plus or minus %v: off by %v", x.at, mapped, unsure, mapped.Sub(x.at))
		}
	}
}

// offset returns by how much the counter is ahead of its leader.
func (f *follower) offset() time.Duration {
	now := time.Now()
	return time.Duration(int64(f.counter()) - f.leader.now(now))
}

// good checks that the counter has the leader's time, and that the report says so.
func (f *follower) good(when string) {
	f.t.Helper()
	r := f.card.Report(time.Now())
	if off := f.offset(); off.Abs() > 10*time.Microsecond || r.State != pipeline.ClockLocked || r.Offset == nil || r.Offset.Abs() > 10*time.Microsecond {
		f.t.Errorf("%s: off by %v, and says %+v, %v", when, off, r, r.Offset)
	}
}

func inBubble(t *testing.T, ppm float64, test func(f *follower)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFollower(t, ppm)
		test(f)
		if err := f.d.Close(); err != nil {
			t.Error(err)
		}
		f.card.open.Store(0)
		if f.card.Report(time.Now()) != nil {
			t.Error("a report of a discipline that has ended")
		}
	})
}

// TestCounterFollows is the proof of the servo: whatever happens to the clocks, the counter is within 10 µs of the clock
// that it follows 30 s later, and no time of a frame goes back.
func TestCounterFollows(t *testing.T) {
	for _, ppm := range []float64{100, -100} {
		for name, happens := range map[string]func(f *follower){
			"nothing":               func(*follower) {},
			"clock 2 s ahead":       func(f *follower) { f.leader.jump(2e9) },
			"clock 8 ms ahead":      func(f *follower) { f.leader.jump(8e6) },
			"clock 12 ms back":      func(f *follower) { f.leader.jump(-12e6) },
			"clock 50 µs back":      func(f *follower) { f.leader.jump(-50e3) },
			"counter begins again":  func(f *follower) { f.glitch(-1 << 62) },
			"counter 2 s back":      func(f *follower) { f.glitch(-2 * time.Second) },
			"counter 5 ms ahead":    func(f *follower) { f.glitch(5 * time.Millisecond) },
			"crystal 50 ppm faster": func(f *follower) { f.unsure = true; _ = f.device.SetClockPPM(ppm + 50) },
			"clock away for a while": func(f *follower) {
				f.leader.fail(errors.New("no such device"), 0)
				f.run(20 * time.Second)
				if r := f.card.Report(time.Now()); r.State != pipeline.ClockHoldover || r.Offset != nil {
					t.Errorf("without the clock: %+v", r)
				}
				f.leader.fail(nil, 0)
			},
		} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, ppm, func(f *follower) {
					f.t = t
					f.follow()
					f.run(30 * time.Second)
					f.good("after 30 s")
					happens(f)
					f.run(30 * time.Second)
					f.good("30 s after that")
				})
			})
		}
	}
}

// state checks the state that the report gives, and that it has an offset exactly if one is known.
func (f *follower) state(want pipeline.ClockState) *pipeline.ClockReport {
	f.t.Helper()
	r := f.card.Report(time.Now())
	if r.State != want || (r.Offset != nil) != (want == pipeline.ClockLocked || want == pipeline.ClockSlewing) {
		f.t.Errorf("the report is %+v, want %s\n%s", r, want, f.log.String())
	}
	return r
}

// TestAClockThatIsSetBack checks that the counter goes slower, as far as its register lets it, and is stepped by the
// next start.
func TestAClockThatIsSetBack(t *testing.T) {
	inBubble(t, 20, func(f *follower) {
		f.t = t
		f.follow()
		f.run(30 * time.Second)
		f.good("before")
		f.leader.jump(-10e9)
		f.run(30 * time.Second)
		r := f.state(pipeline.ClockSlewing)
		if off := f.offset(); r.Rate != -servoMost || off < 9*time.Second || off > 10*time.Second || r.Steps != 1 {
			t.Errorf("off by %v: %+v", off, r)
		}
		if n := strings.Count(f.log.String(), "had been set back"); n != 1 {
			t.Errorf("the log says it %d times:\n%s", n, f.log.String())
		}
		if err := f.d.Close(); err != nil {
			t.Error(err)
		}
		f.cameras(0)
		f.last, f.shown, f.exposed, f.frames = time.Time{}, time.Time{}, 0, nil
		f.follow()
		f.run(30 * time.Second)
		f.good("after a restart")
	})
}

// TestAClockThatComesLate checks frames before and after, on a card whose counter is ahead from an earlier run.
func TestAClockThatComesLate(t *testing.T) {
	inBubble(t, -40, func(f *follower) {
		f.t = t
		f.device.StepClock(time.Duration(f.leader.zero) + time.Hour)
		f.leader.fail(errors.New("open /dev/ptp0: no such device"), 0)
		f.follow()
		f.run(5 * time.Second)
		f.state(pipeline.ClockWaiting)
		_, opens, _ := f.leader.state()
		if !f.last.IsZero() || opens < 4 || strings.Count(f.log.String(), "no such device") != 1 {
			t.Errorf("the last exposure is from %v; %d tries; %s", f.last, opens, f.log.String())
		}
		f.leader.fail(nil, 0)
		f.run(30 * time.Second)
		f.good("when the clock is there")
	})
}

// TestAClockThatComesLateAndIsBehind checks frames that have had this machine's time: those of the clock do not go back
// behind it. If the clock is far behind, that is said.
func TestAClockThatComesLateAndIsBehind(t *testing.T) {
	for _, behind := range []time.Duration{5 * time.Millisecond, 3 * time.Second} {
		inBubble(t, 40, func(f *follower) {
			f.t = t
			f.leader.zero = f.leader.start.Add(tai - behind).UnixNano()
			f.leader.fail(errors.New("open /dev/ptp0: no such device"), 0)
			f.follow()
			f.run(5 * time.Second)
			f.state(pipeline.ClockWaiting)
			f.leader.fail(nil, 0)
			f.run(30 * time.Second)
			if said := strings.Count(f.log.String(), "was behind this machine's when it came"); said != map[bool]int{true: 1}[behind > stepAhead] || f.last.IsZero() {
				t.Errorf("behind by %v: it is said %d times, and the last exposure is from %v\n%s", behind, said, f.last, f.log.String())
			}
			if behind < stepAhead {
				f.good("when the clock is there")
				return
			}
			if r := f.state(pipeline.ClockSlewing); r.Rate != -servoMost || f.offset() < behind-time.Second {
				t.Errorf("off by %v: %+v", f.offset(), r)
			}
		})
	}
}

// TestWhenNothingFollows checks that the counter keeps the rate of its crystal alone when there are no readings any more,
// although it was on its way to the clock.
func TestWhenNothingFollows(t *testing.T) {
	for name, end := range map[string]func(f *follower){
		"no camera is open": func(f *follower) { f.cameras(0) },
		"the clock is gone": func(f *follower) { f.leader.fail(errors.New("no such device"), 0) },
		"closed":            func(f *follower) { _ = f.d.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 50, func(f *follower) {
				f.t = t
				f.follow()
				f.run(30 * time.Second)
				f.leader.jump(8e6)
				f.run(3 * time.Second)
				if rate := f.block().TimeRate(); rate != servoMost {
					t.Fatalf("the rate is %d on the way to the clock", rate)
				}
				end(f)
				time.Sleep(3 * time.Second)
				crystal := int32(f.leader.ppm*1000 - 50_000)
				if rate := f.block().TimeRate(); rate < crystal-1000 || rate > crystal+1000 {
					t.Errorf("the rate stays %d, that of the crystal is %d", rate, crystal)
				}
			})
		})
	}
}

// stuckLog is a log that takes nothing until it is closed.
type stuckLog chan struct{}

func (l stuckLog) Write(b []byte) (int, error) { <-l; return len(b), nil }

// TestALogThatTakesNothing checks that frames come, also when the counter begins again.
func TestALogThatTakesNothing(t *testing.T) {
	inBubble(t, 20, func(f *follower) {
		f.t = t
		log := make(stuckLog)
		f.followWith(log)
		f.run(2 * time.Second)
		for range mostUnsaid + 2 {
			f.glitch(-time.Hour)
			f.run(time.Second)
		}
		close(log)
		f.unsure = false
		f.run(30 * time.Second)
		f.good("with a log that takes something again")
	})
}

// TestACounterThatBeginsAgainAlone resets the FPGA while the clock does not answer.
func TestACounterThatBeginsAgainAlone(t *testing.T) {
	inBubble(t, 80, func(f *follower) {
		f.t = t
		f.follow()
		f.run(30 * time.Second)
		f.leader.fail(errors.New("no such device"), 0)
		f.run(5 * time.Second)
		f.glitch(-1 << 62)
		f.cameras(0)
		f.card.mapAgain(f.counter)
		f.cameras(1)
		f.run(5 * time.Second)
		r := f.state(pipeline.ClockHoldover)
		if off := f.offset(); off.Abs() > time.Millisecond || r.Steps != 2 {
			t.Errorf("off by %v: %+v", off, r)
		}
		f.leader.fail(nil, 0)
		f.run(30 * time.Second)
		f.good("when the clock is back")
	})
}

// TestAWrongReading checks that one reading that contradicts the others changes nothing.
func TestAWrongReading(t *testing.T) {
	inBubble(t, 0, func(f *follower) {
		f.t = t
		f.follow()
		f.run(30 * time.Second)
		f.leader.jump(40e6)
		f.run(time.Second)
		f.state(pipeline.ClockHoldover)
		f.leader.jump(-40e6)
		f.run(time.Second)
		if r := f.state(pipeline.ClockLocked); r.Steps != 1 {
			t.Errorf("%+v", r)
		}
		f.good("after a wrong reading")
	})
}

// TestAnOldReportIsNotShown stops the discipline inside a reading that does not end.
func TestAnOldReportIsNotShown(t *testing.T) {
	inBubble(t, 0, func(f *follower) {
		f.t = t
		f.follow()
		f.run(30 * time.Second)
		f.good("before")
		f.leader.fail(nil, 10*time.Second)
		f.run(5 * time.Second)
		f.state(pipeline.ClockHoldover)
		f.leader.fail(nil, 0)
		f.run(20 * time.Second)
		f.state(pipeline.ClockLocked)
	})
}

// TestAClockThatHangs checks that neither the start nor the end waits for it for long.
func TestAClockThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollower(t, 0)
		f.leader.fail(nil, time.Hour)
		began := time.Now()
		f.follow()
		f.state(pipeline.ClockWaiting)
		if err := f.d.Close(); err == nil || !strings.Contains(err.Error(), "phc:/dev/ptp0 does not answer") || time.Since(began) > 3*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		before := f.counter()
		time.Sleep(2 * time.Hour)
		if d := time.Duration(f.counter() - before); d != 2*time.Hour {
			t.Errorf("the counter was changed after the end: %v in two hours", d)
		}
	})
}

// oldDesign lacks the capability to set the counter.
type oldDesign struct{ fpga.Registers }

func (o oldDesign) Read32(off uint32) uint32 {
	v := o.Registers.Read32(off)
	if off == fpga.CamCapabilities {
		v &^= uint32(fpga.CapTimeSet)
	}
	return v
}

// TestADesignThatCannotBeSet checks that its frames have no such time, and that log and report say why.
func TestADesignThatCannotBeSet(t *testing.T) {
	inBubble(t, 0, func(f *follower) {
		f.t = t
		for i := range f.card.BARs {
			f.card.BARs[i].Registers = oldDesign{f.card.BARs[i].Registers}
		}
		f.follow()
		f.run(3 * time.Second)
		f.state(pipeline.ClockUnsupported)
		if !f.last.IsZero() || !strings.Contains(f.log.String(), "its interface 1.3 has no capability bit 7") {
			t.Errorf("%v: %s", f.last, f.log.String())
		}
	})
}

// TestFramesHaveTheTimeOfTheClock steps the counter of a running camera, decades ahead, and fails no frame by that.
// Frames have no such time before; after it, theirs are those of the clock.
func TestFramesHaveTheTimeOfTheClock(t *testing.T) {
	b := newBench(t, 320, 240, pipeline.Rate{Num: 250, Den: 1})
	l := &leader{start: time.Now(), rng: rand.New(rand.NewPCG(1, 1)), gone: errors.New("not yet")}
	l.zero = l.start.Add(time.Hour).UnixNano()
	d := b.card.Follow(DisciplineConfig{
		Name: "test", Open: func() (TimeSource, error) { return l, nil }, Ahead: tai, Logger: slog.New(slog.DiscardHandler),
	})
	c := b.open(t, 8)
	var n, after int
	var last time.Time
	collect(t, c, 300, func(f *pipeline.Frame) {
		defer f.Release()
		x := f.Times
		if n++; n == 20 {
			d.look(pair{l.start, uint64(l.zero), 0}, nil)
		}
		if x.Clock == nil || x.Clock.Source != "test" || x.ExposureStart.After(x.Captured) || x.Captured.Sub(x.ExposureStart) > 5*time.Second {
			t.Errorf("frame %d: %+v", f.Sequence, x)
		}
		if x.Reference.IsZero() {
			return
		}
		after++
		want := time.Unix(0, l.now(x.ExposureStart)).Add(-tai)
		if off := x.Reference.Sub(want).Abs(); off > x.Uncertainty+time.Millisecond || !x.Reference.After(last) || !x.Shown().Equal(x.Reference) {
			t.Errorf("frame %d is from %v, want %v after %v: off by %v", f.Sequence, x.Reference, want, last, off)
		}
		if a := x.Absolute(); !a.ExposureStart.Equal(x.Reference) || a.Captured.Sub(a.ExposureStart) != x.Captured.Sub(x.ExposureStart) {
			t.Errorf("frame %d: %+v of %+v", f.Sequence, a, x)
		}
		last = x.Reference
	})
	if st := c.Status().Counters; after < 250 || n < after+20 || st["restarting"] != 0 || st["crc"] != 0 {
		t.Errorf("%d of %d frames have the time; %v", after, n, st)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
