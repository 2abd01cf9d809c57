// SPDX-License-Identifier: Apache-2.0

package group

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// rig has two sources whose exposures the group triggers.
type rig struct {
	*Set
	mu    sync.Mutex
	fired map[string][]time.Time
	slow  time.Duration // how long a trigger takes
	log   lockedText
}

// lockedText is a log that is read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newRig() *rig {
	r := &rig{fired: map[string][]time.Time{}}
	r.Set = NewSet(SetConfig{Logger: slog.New(slog.NewTextHandler(&r.log, nil)), Trigger: func(source string, latest time.Time) error {
		r.mu.Lock()
		slow := r.slow
		r.slow = 0
		r.mu.Unlock()
		time.Sleep(slow)
		if time.Now().After(latest) {
			return ErrLate
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fired[source] = append(r.fired[source], time.Now())
		if source == "broken" {
			return errors.New("it is away")
		}
		return nil
	}})
	return r
}

// triggers returns the times at which a source was triggered.
func (r *rig) triggers(source string) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.fired[source])
}

// TestTriggersByTime checks that members are triggered at the instants, all at once, that an instant is omitted when it
// is too late for it, and that a change of the configuration ends the triggers of the groups that change only.
func TestTriggersByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(3 * time.Millisecond)
		r, one, two := newRig(), stereo(), stereo()
		one.Trigger, two.Trigger = true, true
		two.Name, two.Sources, two.Rate.Num = "two", []string{"third", "broken"}, 50
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.Configure([]Config{one, two})
		r.Start(ctx)
		r.Start(ctx)
		time.Sleep(time.Second)
		for source, n := range map[string]int{"left": 100, "right": 100, "third": 50, "broken": 50} {
			at := r.triggers(source)
			if len(at) != n || slices.ContainsFunc(at, func(x time.Time) bool { return x.Nanosecond()%int(time.Second/time.Duration(n)) != 0 }) {
				t.Fatalf("%s: %v", source, at)
			}
		}
		r.mu.Lock()
		r.slow = 135 * time.Millisecond
		r.mu.Unlock()
		time.Sleep(time.Second - time.Millisecond)
		for i, x := range []struct {
			first, last string
			instants    int
		}{{"left", "right", 200}, {"third", "broken", 100}} {
			b := r.Books()[i]
			if n := len(r.triggers(x.first)); n != len(r.triggers(x.last)) || n+int(b.Missed) != x.instants {
				t.Errorf("%d triggers, %d are missed", n, b.Missed)
			}
			late := func(at time.Time) bool { return at.Sub(at.Truncate(time.Second/100)) > time.Millisecond/2 }
			if at := r.triggers(x.first); slices.ContainsFunc(at, late) {
				t.Errorf("%s: a trigger that waited is not omitted: %v", x.first, at)
			}
		}
		if b := r.Books(); b[0].Missed+b[1].Missed < 6 || b[0].Refused != 0 || b[1].Refused < 90 {
			t.Errorf("%+v", b)
		}
		two.Rate.Num = 25
		before, third := len(r.triggers("left")), len(r.triggers("third"))
		r.Configure([]Config{one, two})
		r.Start(ctx)
		time.Sleep(time.Second)
		if n := len(r.triggers("left")) - before; n != 100 {
			t.Errorf("%d triggers of the group that stays", n)
		}
		if n := len(r.triggers("third")) - third; n != 25 {
			t.Errorf("%d triggers of the group that changes", n)
		}
		r.Close()
		before = len(r.triggers("left"))
		if time.Sleep(time.Second); len(r.triggers("left")) != before {
			t.Error("it triggers after Close")
		}
	})
}

// TestInstantsThatAreMissed checks that each instant is either observed or missed, also when this machine is late for
// several, and that a clock that is set back is followed.
func TestInstantsThatAreMissed(t *testing.T) {
	const ms = time.Millisecond
	begin := time.Now().Truncate(time.Second)
	m := Metronome{Instants: Instants{Num: 100, Den: 1}, Slack: 2 * ms}
	first := m.from(begin)
	for _, x := range []struct {
		called, woken   time.Duration // since begin
		instant, missed uint64        // the one that is awaited, since first, and those missed before it
		inTime          bool
	}{
		{0, 1 * ms, 0, 0, true},
		{2 * ms, 10 * ms, 1, 0, true},
		{11 * ms, 57 * ms, 2, 0, false},
		{57 * ms, 60 * ms, 6, 3, true},
		{61 * ms, 72 * ms, 7, 0, true},
		{98 * ms, 100 * ms, 10, 2, true},
		{102 * ms, 110 * ms, 11, 0, true},
		{121 * ms, 122 * ms, 12, 0, true},
	} {
		n, missed := m.next(begin.Add(x.called))
		if early, _ := m.observe(n, m.At(n).Add(-1)); early {
			t.Errorf("%+v: it is observed before its time", x)
		}
		if _, inTime := m.observe(n, begin.Add(x.woken)); n != first+x.instant || missed != x.missed || inTime != x.inTime {
			t.Errorf("%+v: instant %d, missed %d, in time %t", x, n-first, missed, inTime)
		}
	}
	back := begin.Add(-time.Hour)
	if n, missed := m.next(back); n != m.from(back) || missed > 0 {
		t.Errorf("after a step back of the clock: instant %d, missed %d", n, missed)
	}
}

// TestMembersOfASet checks that the frames of sources get their numbers, that a source of no group gets none,
// that losses are marked with the member that lost, and that an incomplete group is logged.
func TestMembersOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.Configure([]Config{stereo()})
		go r.Watch(t.Context())
		pool := pipeline.NewPool("camera", pipeline.Format{}, make([]pipeline.Slot, 1), nil)
		var reference time.Time
		take := func(source string, at time.Time, lost uint64) uint64 {
			f := pool.Get()
			defer f.Release()
			f.Times.ExposureStart, f.Times.Reference = at, reference
			r.Seat(source).Take(f, lost, 0)
			return f.Group
		}
		at := time.Now().Add(time.Second)
		first := take("left", at, 0)
		if n := take("right", at.Add(time.Millisecond), 0); n != first || n == 0 {
			t.Fatal(first, n)
		}
		if n := take("alone", at, 0); n != 0 {
			t.Error("a source of no group has number", n)
		}
		take("left", at.Add(10*time.Millisecond), 0)
		take("left", at.Add(20*time.Millisecond), 0)
		take("right", at.Add(20*time.Millisecond), 1)
		time.Sleep(1100 * time.Millisecond)
		if b := r.Books()[0]; b.Complete != 2 || b.Incomplete != 1 || len(b.Recent) != 1 || b.Recent[0].Number != first+1 || b.Recent[0].Missing[0] != "right lost" {
			t.Errorf("%+v", b)
		}
		if !strings.Contains(r.log.String(), "right lost") {
			t.Error(r.log.String())
		}
		if n := take("left", at.Add(30*time.Millisecond), 0); n != first+3 {
			t.Errorf("number %d, want %d", n, first+3)
		}
		reference = at.Add(time.Hour)
		if n := take("left", at.Add(40*time.Millisecond), 0); n != first+3600*100 {
			t.Errorf("by a clock that is an hour ahead: number %d, want %d", n, first+3600*100)
		}
		reference = time.Time{}
		for range 2 {
			take("right", reference, 0)
			time.Sleep(1100 * time.Millisecond)
		}
		if n := strings.Count(r.log.String(), "nothing says when their exposure began"); n != 1 || !strings.HasSuffix(r.Books()[0].String(), ", right untimed 2") {
			t.Errorf("of frames without a time: %d times in the log, and %s\n%s", n, r.Books()[0], r.log.String())
		}
		r.Configure(nil)
		if n := take("left", at.Add(30*time.Millisecond), 0); n != 0 || len(r.Books()) > 0 {
			t.Error("it is still in a group", n)
		}
	})
}

// stuckLog is a log that takes nothing until it is closed.
type stuckLog chan struct{}

func (l stuckLog) Write(b []byte) (int, error) { <-l; return len(b), nil }

// TestALogThatTakesNothing checks that frames get numbers, and the books can be read, while it is written to.
func TestALogThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := make(stuckLog)
		s := NewSet(SetConfig{Logger: slog.New(slog.NewTextHandler(log, nil))})
		s.Configure([]Config{stereo()})
		pool := pipeline.NewPool("camera", pipeline.Format{}, make([]pipeline.Slot, 1), nil)
		f := pool.Get()
		defer f.Release()
		s.Seat("left").Take(f, 0, 0) // has no time
		looked := make(chan struct{})
		go func() { defer close(looked); s.look(time.Now()) }()
		synctest.Wait()
		if !s.mu.TryLock() {
			t.Fatal("the set is locked while the log is written")
		}
		s.mu.Unlock()
		close(log)
		<-looked
	})
}
