// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/bus"
	"github.com/tegracast/tegracast/pipeline/web"
)

// Appliance is what is told of one.
type Appliance struct {
	Version string // of the program
	Model   string // of the board; empty: it has none
	Stats   func() pipeline.Stats
	Health  func() (ready bool, stalled error)
	Outputs func() []web.Output
	Sensors func() []web.Reading
}

const (
	every = 10 * time.Second // from one message of health to the next one
	look  = time.Second      // after which a change is told at once
)

// Watch publishes the health of an appliance until ctx ends, and that it has.
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
			last = time.Time{} // who opens it is told at once
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
	for _, o := range a.Outputs() {
		h := bus.OutputHealth{Name: o.Name, Sends: o.Sends, To: o.To, RTSP: o.RTSP}
		for _, x := range st.Outputs {
			if x.Name == o.Name {
				h.Delivered, h.Dropped, h.Error = x.Delivered, x.Drops(), x.Error
			}
		}
		c.Outputs = append(c.Outputs, h)
	}
	for _, r := range a.Sensors() {
		c.Sensors = append(c.Sensors, bus.SensorHealth{Name: r.Name, Value: r.Value, Unit: r.Unit, Alarm: r.Alarm})
	}
	_ = b.with(func(p *bus.Publisher) error { p.Health(c); return nil }) // it may be closed by now
}
