// SPDX-License-Identifier: Apache-2.0

package appliance

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
	"github.com/tegracast/tegracast/pipeline/record"
)

// errNoControl means that there is no adjustable camera or isp of that name.
var errNoControl = errors.New("there is nothing of that name that could be set")

// exposureState contains a camera's exposure time and gain, and which of them can be set.
type exposureState struct {
	Source       string
	Microseconds float64
	Gain         float64
	Longest      float64 // the longest possible exposure in µs: the frame period
	HasExposure  bool    // the exposure can be set
	HasGain      bool    // the gain can be set
	HasAuto      bool    // there is a loop that can control the exposure
	Auto         bool    // the loop controls the exposure
}

// exposureSetting sets a camera manually, or, if Auto is true, returns control to the loop. A value of 0 leaves
// exposure or gain unchanged.
type exposureSetting struct {
	Microseconds float64
	Gain         float64
	Auto         bool
}

// whiteBalanceState is the white balance of an isp, as gains relative to green.
type whiteBalanceState struct {
	ISP     string
	Red     float64
	Blue    float64
	HasAuto bool // a loop can control both
	Auto    bool // the loop controls both
}

// whiteBalanceSetting sets the gains manually, or, if Auto is true, returns control to the loop.
type whiteBalanceSetting struct {
	Red  float64
	Blue float64
	Auto bool
}

// A controlPanel changes the settings of a source and of its isps while they run. Settings last until a reload opens the
// source again; they survive faults of the camera.
type controlPanel struct {
	name   string
	source pipeline.Source
	mono   bool // the sensor is monochrome

	mu   sync.Mutex
	isps []balance
}

// balance is the white balance of an isp.
type balance struct {
	name  string
	stage auto.Balancer
	gains isp.Gains // the current ones; unused if balances returns true
	black [4]int    // black levels by channel
	turn  isp.Turn
	loop  *controlLoop // nil: none
}

func newControlPanel(name string, source pipeline.Source) *controlPanel {
	samples, _ := source.Format().Pixel.Samples()
	return &controlPanel{name: name, source: source, mono: samples.Mosaic == pipeline.Mono}
}

// Add adds an isp with its configuration, and its loop, which may be nil.
func (p *controlPanel) Add(name string, stage auto.Balancer, c *isp.Config, loop *controlLoop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := balance{name: name, stage: stage, gains: whole(c.Gains), turn: c.Turn, loop: loop}
	for i := range b.black {
		b.black[i] = c.BlackLevel + c.Black[i]
	}
	p.isps = append(p.isps, b)
}

// whole returns gains with 1 for those that are 0, which means 1.
func whole(g isp.Gains) isp.Gains {
	return isp.Gains{R: cmp.Or(g.R, 1), G: cmp.Or(g.G, 1), B: cmp.Or(g.B, 1)}
}

// now returns the current gains.
func (b *balance) now() isp.Gains {
	if b.balances() {
		return whole(b.loop.State().Gains)
	}
	return b.gains
}

// Shot returns the settings for a recording: the camera's, and those of the first isp. known is false if there is
// neither, or if the camera's settings cannot be read.
func (p *controlPanel) Shot() (s record.Settings, known bool) {
	if camera, is := p.source.(auto.Camera); is {
		exposure, gain, err := camera.Exposure()
		if err != nil {
			return s, false
		}
		s.Exposure, s.Gain, known = exposure, gain, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.isps) == 0 {
		return s, known
	}
	b := &p.isps[0]
	s.BlackLevels, s.Orientation = b.black, b.turn.Orientation()
	if g := b.now(); !p.mono {
		s.WhiteBalance = [3]float64{g.R, g.G, g.B}
	}
	return s, true
}

// exposureLoop returns the loop for the exposure, which may be frozen, or nil if there is none. p.mu must be held.
func (p *controlPanel) exposureLoop() *controlLoop {
	if i := slices.IndexFunc(p.isps, func(b balance) bool { return b.loop != nil && b.loop.config.Exposure != nil }); i >= 0 {
		return p.isps[i].loop
	}
	return nil
}

// balances reports whether there is a loop for the isp's white balance. The loop may be frozen.
func (b *balance) balances() bool { return b.loop != nil && b.loop.config.WhiteBalance != nil }

// Exposure returns the camera's setting. It returns false if the source is not a camera, if the setting cannot be read,
// or if neither exposure nor gain can be set.
func (p *controlPanel) Exposure() (e exposureState, can bool) {
	camera, is := p.source.(auto.Camera)
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
	e = exposureState{
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

// WhiteBalance returns the white balance of each isp, or nil if there is no isp or the sensor is monochrome.
func (p *controlPanel) WhiteBalance() (list []whiteBalanceState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mono {
		return nil
	}
	for i := range p.isps {
		b := &p.isps[i]
		gains := b.now()
		w := whiteBalanceState{ISP: b.name, Red: gains.R, Blue: gains.B}
		if b.balances() {
			_, frozen := b.loop.Frozen()
			w.HasAuto, w.Auto = true, !frozen
		}
		list = append(list, w)
	}
	return list
}

// SetExposure sets the camera's exposure and gain, or returns control to the loop. It returns errNoControl if the
// source is not a camera, and other errors if the setting is invalid or cannot be applied.
func (p *controlPanel) SetExposure(s exposureSetting) error {
	camera, is := p.source.(auto.Camera)
	if !is {
		return errNoControl
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	loop, period := p.exposureLoop(), p.source.Format().Rate.Period()
	if s.Microseconds > micro(period) && !s.Auto { // before the conversion to a duration, which could overflow
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

// SetWhiteBalance sets the gains of an isp, or returns control to its loop. It returns false if there is no isp of that
// name, or if the sensor is monochrome.
func (p *controlPanel) SetWhiteBalance(name string, s whiteBalanceSetting) (found bool, err error) {
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
