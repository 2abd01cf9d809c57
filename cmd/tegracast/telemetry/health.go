// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"os"
	"time"

	"github.com/tegracast/tegracast/board"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/bus"
)

// Appliance provides the published properties of an appliance.
type Appliance struct {
	Version string // version of the program
	Model   string // of the board; empty: unknown
	Stats   func() pipeline.Stats
	Health  func() (ready bool, stalled error)
	Outputs func() []bus.OutputHealth // without counters and errors
}

const (
	every = 10 * time.Second // interval of the health messages
	look  = time.Second      // a change is published after this interval at the latest
)

// Watch publishes the health of an appliance until ctx ends, and finally that it has ended.
func (b *Bus) Watch(ctx context.Context, a Appliance) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	began := time.Now()
	var last time.Time
	var before bus.Condition
	for {
		if b.open.Load() {
			ready, stalled := a.Health()
			c := bus.Condition{Ready: ready}
			if stalled != nil {
				c.Stalled = stalled.Error()
			}
			if time.Since(last) >= every || c.Ready != before.Ready || c.Stalled != before.Stalled {
				last, before = time.Now(), c
				b.health(a, c, began)
			}
		} else {
			last = time.Time{} // a newly opened bus gets a message at once
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.health(a, bus.Condition{Ended: true}, began)
			return
		}
	}
}

// health fills in c and publishes it.
func (b *Bus) health(a Appliance, c bus.Condition, began time.Time) {
	c.Program, c.Model, c.Started, c.Every = a.Version, a.Model, began.UTC(), every
	st := a.Stats()
	c.Sources = make([]bus.SourceHealth, 0, len(st.Sources))
	for _, s := range st.Sources {
		c.Sources = append(c.Sources, bus.SourceHealth{Name: s.Name, Captured: s.Captured, Lost: s.Lost, Idle: s.Idle})
	}
	c.Outputs = []bus.OutputHealth{}
	for _, h := range a.Outputs() {
		for _, x := range st.Outputs {
			if x.Name == h.Name {
				h.Delivered, h.Dropped, h.Error = x.Delivered, x.Drops(), x.Error
			}
		}
		c.Outputs = append(c.Outputs, h)
	}
	for _, r := range board.Readings(os.DirFS("/")) {
		c.Sensors = append(c.Sensors, bus.SensorHealth{Name: r.Name, Value: r.Value, Unit: r.Unit, Alarm: r.Alarm})
	}
	_ = b.with(func(p *bus.Publisher) error { p.Health(c); return nil }) // the bus may have been closed
}
