// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline/isp"
)

// A Camera is controlled by a Loop.
type Camera interface {
	Adjustable() (exposure, gain bool)                           // which of the two SetExposure can change
	Exposure() (exposure time.Duration, gain float64, err error) // the current setting
	// SetExposure changes the setting; a value of 0 leaves exposure or gain unchanged. from is the number of the first
	// frame with the new setting.
	SetExposure(exposure time.Duration, gain float64) (from uint64, err error)
}

// A Balancer is something whose white balance a Loop controls, such as an isp.Stage.
type Balancer interface {
	SetGains(isp.Gains) error
}

// LoopConfig configures a Loop. The Loop controls exposure and gain only if Exposure is not nil, and the white balance
// only if WhiteBalance is not nil.
type LoopConfig struct {
	Camera       Camera // required for Exposure
	Exposure     *ExposureConfig
	WhiteBalance *WhiteBalanceConfig
	Gains        isp.Gains    // initial gains of the isp; 0 means 1
	Logger       *slog.Logger // nil: slog.Default()
}

// A State is the current state of a Loop.
type State struct {
	Frame           uint64  // number of the frame with the latest statistics
	Level           float64 // mean of the sensor's green, 0 to 1; -1 if unknown
	Setting         Setting // current setting of the camera
	Limit           int     // -1: the scene is too bright for the limits of exposure and gain; 1: too dark; 0: neither
	ExposureFrozen  bool
	Gains           isp.Gains // relative to green; the isp has them multiplied so that none is below 1
	GainsLimited    bool      // a gain is at one of its limits
	GainsFrozen     bool
	Settings, Fails uint64 // how often the loop has changed the camera's setting, and how often the camera refused
}

// A Loop controls the camera's exposure and gain and the isp's white balance according to the isp's statistics. Observe
// is called on the path of frames: it copies into existing memory, and never blocks.
type Loop struct {
	config   LoopConfig
	exposure *Exposure
	balance  *WhiteBalance
	green    float64 // the isp's gain of green

	// Three buffers: Observe fills one, Run reads one, and between holds the newest complete one.
	filling, reading *isp.Statistics
	between          atomic.Pointer[isp.Statistics]
	news             chan struct{} // holds a value if Run has not read the newest statistics

	stepping                    sync.Mutex // held while setting something, by Run or by hand
	freezeExposure, freezeGains atomic.Bool
	mu                          sync.Mutex
	state                       State
	failing                     bool // the latest setting was refused, and this was logged
}

// NewLoop returns a Loop. If it is to control the exposure, it starts with the camera's current setting. Errors wrap
// ErrConfig or are the camera's.
func NewLoop(c LoopConfig) (*Loop, error) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	l := &Loop{config: c, green: cmp.Or(c.Gains.G, 1), filling: &isp.Statistics{}, reading: &isp.Statistics{}, news: make(chan struct{}, 1)}
	l.between.Store(&isp.Statistics{})
	l.state = State{Level: -1, Gains: c.Gains}
	if c.Exposure != nil {
		exposure, gain, err := c.Camera.Exposure()
		if err != nil {
			return nil, err
		}
		l.state.Setting = Setting{exposure, gain}
		if l.exposure, err = NewExposure(*c.Exposure, l.state.Setting); err != nil {
			return nil, err
		}
	}
	if c.WhiteBalance != nil {
		var err error
		if l.balance, err = NewWhiteBalance(*c.WhiteBalance, c.Gains); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Observe passes a copy of a frame's statistics to Run. It is meant for isp.Config.Observe. Calls must not overlap.
func (l *Loop) Observe(s *isp.Statistics) {
	*l.filling = *s
	l.filling = l.between.Swap(l.filling)
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// Freeze freezes exposure and gain if exposure is true, or else unfreezes them, and does the same for the white
// balance, from the next frame on.
func (l *Loop) Freeze(exposure, whiteBalance bool) {
	l.freezeExposure.Store(exposure)
	l.freezeGains.Store(whiteBalance)
}

// SetExposure sets the camera by hand, and freezes the setting as Freeze does; 0 leaves a value unchanged. After
// Release the loop continues from there. If it returns an error, which is the camera's, nothing has changed. The loop
// must control the exposure.
func (l *Loop) SetExposure(exposure time.Duration, gain float64) error {
	l.stepping.Lock()
	defer l.stepping.Unlock()
	from, err := l.config.Camera.SetExposure(exposure, gain)
	if err != nil {
		return err
	}
	last := l.exposure.last()
	set := Setting{cmp.Or(exposure, last.Exposure), cmp.Or(gain, last.Gain)}
	l.exposure.note(from, set)
	l.freezeExposure.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Setting, l.state.ExposureFrozen, l.state.Limit = set, true, 0
	return nil
}

// SetGains sets the white balance of a stage by hand, and freezes it as Freeze does; green's gain stays 1. After
// Release the loop continues from there. If it returns an error, which is the stage's, nothing has changed. The loop
// must control the white balance.
func (l *Loop) SetGains(stage Balancer, red, blue float64) error {
	l.stepping.Lock()
	defer l.stepping.Unlock()
	gains := isp.Gains{R: red, G: 1, B: blue}
	if err := l.balanceBy(stage, gains); err != nil {
		return err
	}
	l.balance.gains = gains
	l.freezeGains.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Gains, l.state.GainsFrozen, l.state.GainsLimited = gains, true, false
	return nil
}

// Release unfreezes exposure and gain, or the white balance, or both.
func (l *Loop) Release(exposure, whiteBalance bool) {
	if exposure {
		l.freezeExposure.Store(false)
	}
	if whiteBalance {
		l.freezeGains.Store(false)
	}
}

// Frozen reports whether exposure and gain, and whether the white balance, are frozen.
func (l *Loop) Frozen() (exposure, whiteBalance bool) {
	return l.freezeExposure.Load(), l.freezeGains.Load()
}

// State returns the current state of the loop.
func (l *Loop) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// Run sets the camera, and the white balance of stage, according to the statistics passed to Observe, until ctx ends.
func (l *Loop) Run(ctx context.Context, stage Balancer) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.news:
			l.reading = l.between.Swap(l.reading)
			l.step(stage, l.reading)
		}
	}
}

// step processes one frame's statistics.
func (l *Loop) step(stage Balancer, s *isp.Statistics) {
	l.stepping.Lock()
	defer l.stepping.Unlock()
	next := l.State()
	next.Frame, next.Level = s.Sequence, Level(s)
	next.ExposureFrozen, next.GainsFrozen = l.freezeExposure.Load(), l.freezeGains.Load()
	if l.exposure != nil {
		l.exposure.Freeze(next.ExposureFrozen)
		if wanted, changed := l.exposure.Step(s, l.green); changed {
			l.set(wanted, &next)
		}
		next.Limit = l.exposure.Limit()
	}
	if l.balance != nil {
		l.balance.Freeze(next.GainsFrozen)
		if gains := l.balance.Step(s); gains != next.Gains {
			if err := l.balanceBy(stage, gains); err != nil {
				l.complain("white balance", err)
			}
			next.Gains = gains
		}
		next.GainsLimited = l.balance.Limited()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = next
}

// balanceBy sets the gains of a stage, raised so that none is below 1.
func (l *Loop) balanceBy(stage Balancer, gains isp.Gains) error {
	gains = raised(gains)
	if err := stage.SetGains(gains); err != nil {
		return err
	}
	l.green = gains.G
	return nil
}

// set changes the camera's setting, and records in next the change or the failure.
func (l *Loop) set(wanted Setting, next *State) {
	from, err := l.config.Camera.SetExposure(wanted.Exposure, wanted.Gain)
	if err != nil {
		l.exposure.Refused()
		next.Fails++
		l.complain("exposure", err)
		return
	}
	l.failing = false
	l.exposure.Holds(from)
	next.Setting = wanted
	next.Settings++
}

func (l *Loop) complain(what string, err error) {
	if !l.failing {
		l.config.Logger.Warn("auto: "+what+" cannot be set: if this persists, correct the limits", "error", err)
	}
	l.failing = true
}
