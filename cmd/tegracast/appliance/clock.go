// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tegracast/tegracast/board/phc"
	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
)

// follow makes the clock of a source's card follow the configured one, if there is one, until the card is closed. It is
// called for each of the card's sources: those of a bare stream alone have no clock.
func (cs *cards) follow(c *config.Source) {
	card := cs.list[c.Card.Name]
	switch {
	case cs.clock == nil:
		return
	case c.Bare:
		cs.log.Warn("a bare stream has no clock that could follow", "source", c.Name, "clock", cs.clock.Source)
		return
	case card.card.Report(time.Now()) != nil:
		return // it does already
	}
	cfg := capture.DisciplineConfig{
		Name: cs.clock.Source, Logger: cs.log.With("device", c.Card.Name),
		Open: func() (capture.TimeSource, error) { return systemClock{}, nil },
	}
	if path, is := cs.clock.PHC(); is {
		cfg.PTP, cfg.Ahead = true, phc.Ahead()
		cfg.Open = func() (capture.TimeSource, error) { return phc.Open(path) }
	}
	d, closeCard := card.card.Follow(cfg), card.close
	card.close = func() error { return errors.Join(d.Close(), closeCard()) }
	cs.add(c.Card.Name, card)
}

// systemClock is this machine's clock. It implements capture.TimeSource.
type systemClock struct{}

// Read returns the quickest of several readings: the wall clock and the monotonic one are read one after the other.
func (systemClock) Read() (ns int64, at time.Time, unsure time.Duration, err error) {
	unsure = 1<<63 - 1
	for range 5 {
		before, now, after := time.Now(), time.Now(), time.Now()
		if half := after.Sub(before)/2 + 1; half < unsure {
			ns, at, unsure = now.UnixNano(), now, half
		}
	}
	return ns, at, unsure, nil
}

func (systemClock) Close() error { return nil }

// A cardClock is the state of a card's clock.
type cardClock struct {
	Card string
	pipeline.ClockReport
}

// clocks returns the states of the cards' clocks that follow another one.
func (cs *cards) clocks() (list []cardClock) {
	all := cs.all()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if r := all[name].card.Report(time.Now()); r != nil {
			list = append(list, cardClock{name, *r})
		}
	}
	return list
}

// String returns the state in words.
func (c cardClock) String() string {
	text := fmt.Sprintf("clock of %s: %s, %s", c.Card, c.Source, c.State)
	if c.Offset != nil {
		text += fmt.Sprintf(", %+d ns", c.Offset.Nanoseconds())
	}
	return text + fmt.Sprintf(", rate %+d ppb, steps %d", c.Rate, c.Steps)
}

// watchClocks calls changed whenever a clock has begun or ceased to have the time of the one that it follows, until ctx
// ends.
func (cs *cards) watchClocks(ctx context.Context, changed func()) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	before := map[string]bool{}
	for {
		now := map[string]bool{}
		for _, c := range cs.clocks() {
			now[c.Card] = c.State == pipeline.ClockLocked
		}
		if !maps.Equal(now, before) {
			changed()
		}
		before = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
