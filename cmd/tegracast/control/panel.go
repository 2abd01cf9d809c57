// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
	"github.com/tegracast/tegracast/pipeline/isp/auto"
	"github.com/tegracast/tegracast/pipeline/web"
)

// A Panel is what a person can set of a source, and of the isps behind it, while they run. It holds until they are opened again.
type Panel struct {
	name   string
	source pipeline.Source
	mono   bool // the sensor sees no colours

	mu   sync.Mutex
	isps []balance
}

// balance is the white balance of an isp.
type balance struct {
	name  string
	stage auto.Balancer
	gains isp.Gains // without a loop: those of now
	loop  *Loop     // nil: there is none
}

// NewPanel makes the panel of a source.
func NewPanel(name string, source pipeline.Source) *Panel {
	samples, _ := source.Format().Pixel.Samples()
	return &Panel{name: name, source: source, mono: samples.Mosaic == pipeline.Mono}
}

// Add adds an isp, with the gains that it begins with, and its loop, which may be nil.
func (p *Panel) Add(name string, stage auto.Balancer, gains isp.Gains, loop *Loop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gains = isp.Gains{R: cmp.Or(gains.R, 1), G: cmp.Or(gains.G, 1), B: cmp.Or(gains.B, 1)}
	p.isps = append(p.isps, balance{name, stage, gains, loop})
}

// exposureLoop is the loop that controls the exposure, or nil. The lock is held.
func (p *Panel) exposureLoop() *Loop {
	if i := slices.IndexFunc(p.isps, func(b balance) bool { return b.loop != nil && b.loop.config.Exposure != nil }); i >= 0 {
		return p.isps[i].loop
	}
	return nil
}

// balances says whether a loop controls the isp's white balance.
func (b *balance) balances() bool { return b.loop != nil && b.loop.config.WhiteBalance != nil }

// Exposure is how the camera is set; false: it cannot be.
func (p *Panel) Exposure() (e web.Exposure, can bool) {
	camera, is := p.source.(Camera)
	if !is {
		return e, false
	}
	exposure, gain := camera.Adjustable()
	now, nowGain, err := camera.Exposure()
	if err != nil || !exposure && !gain {
		return e, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e = web.Exposure{
		Source: p.name, Microseconds: micro(now), Gain: nowGain, HasExposure: exposure, HasGain: gain,
		Longest: micro(p.source.Format().Rate.Period()),
	}
	if l := p.exposureLoop(); l != nil {
		frozen, _ := l.Frozen()
		e.HasAuto, e.Auto = true, !frozen
	}
	return e, true
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// WhiteBalance is that of each isp.
func (p *Panel) WhiteBalance() (list []web.WhiteBalance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mono {
		return nil
	}
	for i := range p.isps {
		b := &p.isps[i]
		w := web.WhiteBalance{ISP: b.name, Red: b.gains.R, Blue: b.gains.B}
		if b.balances() {
			_, frozen := b.loop.Frozen()
			s := b.loop.State()
			w.Red, w.Blue, w.HasAuto, w.Auto = cmp.Or(s.Gains.R, 1), cmp.Or(s.Gains.B, 1), true, !frozen
		}
		list = append(list, w)
	}
	return list
}

// SetExposure sets the camera, or has the loop do so again.
func (p *Panel) SetExposure(s web.ExposureSetting) error {
	camera, is := p.source.(Camera)
	if !is {
		return web.ErrNoControl
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	loop, period := p.exposureLoop(), p.source.Format().Rate.Period()
	if s.Microseconds > micro(period) && !s.Auto { // before it is a duration, which may have no room for it
		return fmt.Errorf("%g µs: must be up to the frame period, %v", s.Microseconds, period)
	}
	exposure := time.Duration(s.Microseconds * float64(time.Microsecond))
	switch {
	case s.Auto && loop == nil:
		return errors.New("nothing controls the exposure: write auto: {exposure: {}} into an isp of this source in the configuration")
	case s.Auto:
		loop.Release(true, false)
		return nil
	case s.Microseconds < 0 || s.Gain < 0 || exposure == 0 && s.Gain == 0:
		return errors.New("give an exposure or a gain above 0")
	case loop != nil:
		return loop.SetExposure(exposure, s.Gain)
	}
	_, err := camera.SetExposure(exposure, s.Gain)
	return err
}

// SetWhiteBalance sets the gains of an isp, or has the loop do so again. It returns false where there is no isp of that name.
func (p *Panel) SetWhiteBalance(name string, s web.WhiteBalanceSetting) (found bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.isps, func(b balance) bool { return b.name == name })
	if i < 0 || p.mono {
		return false, nil
	}
	b := &p.isps[i]
	switch {
	case s.Auto && !b.balances():
		return true, errors.New("nothing controls the white balance: write auto: {white_balance: {}} into this isp in the configuration")
	case s.Auto:
		b.loop.Release(false, true)
		return true, nil
	case !(s.Red > 0 && s.Blue > 0):
		return true, errors.New("give the gains of red and blue, above 0")
	case b.balances():
		return true, b.loop.SetGains(b.stage, s.Red, s.Blue)
	}
	gains := isp.Gains{R: s.Red, G: b.gains.G, B: s.Blue}
	if err := b.stage.SetGains(gains); err != nil {
		return true, err
	}
	b.gains = gains
	return true, nil
}
