// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// settleFrames is the number of frames after the latest one from which a new exposure surely applies: one is being
// transferred, one exposed, and sensors take a setting up to two frames later.
const settleFrames = 4

// v4l2Settings are the controls of a session: those of the device, and those of its sensor, which may have a device file of
// its own.
type v4l2Settings struct {
	watched watchedDevice // of calls while the camera streams
	mu      sync.Mutex    // held by those calls, and by close
	stuck   atomic.Bool   // one of them does not return
	closed  bool
	devices []*v4l2Controls // the device's, then the sensor's

	exposure, gain, perSecond v4l2Quantity // the last one is the frame rate
}

// v4l2Controls are the controls of a device file.
type v4l2Controls struct {
	device videoDevice
	list   []videodev.Setting
	sensor bool
}

// A v4l2Quantity is a control with its unit.
type v4l2Quantity struct {
	of      *v4l2Controls
	setting *videodev.Setting
	unit    float64 // value of the control for a second, for a gain of 1, or for a frame per second
	manual  []videodev.Value
}

// find opens the device file of the sensor, if it has one.
func (t *v4l2Settings) find(s *v4l2Session) {
	t.devices = []*v4l2Controls{{device: &watchedFile{s.device.videoDevice, &t.watched}}}
	if s.graph.graph != nil {
		if d, err := s.openEntity(s.graph.sensor); err == nil {
			d.watch = &t.watched
			t.devices = append(t.devices, &v4l2Controls{device: d, sensor: true})
		}
	}
}

// read reads the controls, whose ranges and units may depend on others, and finds those for exposure, gain and rate.
func (t *v4l2Settings) read(s *v4l2Session) {
	for _, d := range t.devices {
		d.list = videodev.Settings(d.device)
	}
	t.findTegra(s)
	if t.exposure.setting == nil {
		t.findExposure(s)
	}
	if t.gain.setting == nil {
		for _, id := range []uint32{videodev.AnalogGain, videodev.Gain} {
			of, setting := t.byID(id)
			unit := s.camera.cfg.GainUnit
			if setting != nil && unit == 0 {
				unit = float64(setting.Min)
			}
			if setting != nil && setting.Writable() && unit > 0 && t.gain.setting == nil {
				t.gain = v4l2Quantity{of, setting, unit, t.off(of, videodev.AutoGain, 0)}
			}
		}
	}
}

// findTegra finds the controls that NVIDIA's sensor drivers have.
func (t *v4l2Settings) findTegra(s *v4l2Session) {
	mode, properties := 0, []uint32(nil)
	if of, setting := t.byID(videodev.TegraProperties); setting != nil {
		properties, _ = videodev.Array(of.device, setting) // it may be empty
	}
	if of, setting := t.byID(videodev.TegraMode); setting != nil {
		if v, err := videodev.Get(of.device, setting); err == nil {
			mode = int(v)
		}
	}
	factors := videodev.TegraFactors(properties, mode)
	t.exposure = t.tegra(videodev.TegraExposure, factors.Exposure)
	t.gain = t.tegra(videodev.TegraGain, cmp.Or(s.camera.cfg.GainUnit, factors.Gain))
	t.perSecond = t.tegra(videodev.TegraRate, factors.Rate)
}

// tegra returns one of NVIDIA's controls with its unit, or the zero v4l2Quantity if the sensor lacks it.
func (t *v4l2Settings) tegra(id uint32, unit float64) v4l2Quantity {
	of, setting := t.byID(id)
	if setting == nil || !setting.Writable() {
		return v4l2Quantity{}
	}
	return v4l2Quantity{of: of, setting: setting, unit: unit}
}

// findExposure finds the control of the exposure: in units of 100 µs, or, of a sensor, in lines.
func (t *v4l2Settings) findExposure(s *v4l2Session) {
	if of, setting := t.byID(videodev.ExposureAbsolute); setting != nil && setting.Writable() {
		t.exposure = v4l2Quantity{of, setting, 1e4, t.off(of, videodev.ExposureAuto, videodev.ExposureManual)}
		return
	}
	for _, of := range t.devices {
		lines := of.find(videodev.Exposure)
		if lines == nil || !lines.Writable() || !of.sensor {
			continue
		}
		if second := t.linesPerSecond(s, of); second > 0 {
			t.exposure = v4l2Quantity{of, lines, second, t.off(of, videodev.ExposureAuto, videodev.ExposureManual)}
		}
	}
}

// off returns the value that ends the automatic control of something, if there is one.
func (t *v4l2Settings) off(of *v4l2Controls, id uint32, value int64) []videodev.Value {
	if s := of.find(id); s != nil && s.Writable() {
		return []videodev.Value{{Setting: s, Value: value}}
	}
	return nil
}

// linesPerSecond returns how many lines a sensor reads in a second, with those of the vertical blanking: its pixel rate,
// divided by the pixels of a line with its horizontal blanking (camera-sensor.rst). 0: it does not tell.
func (t *v4l2Settings) linesPerSecond(s *v4l2Session, of *v4l2Controls) float64 {
	rate, blank := of.find(videodev.PixelRate), of.find(videodev.HorizontalBlank)
	if rate == nil || blank == nil {
		return 0
	}
	f, err := videodev.Pad(of.device, s.sensorPad())
	pixels, unknown := videodev.Get(of.device, rate)
	columns, too := videodev.Get(of.device, blank)
	if err != nil || unknown != nil || too != nil || pixels <= 0 || columns+int64(f.Width) <= 0 {
		return 0
	}
	return float64(pixels) / float64(columns+int64(f.Width))
}

// sensorPad returns the pad by which the sensor's pixels leave it.
func (s *v4l2Session) sensorPad() int {
	if len(s.graph.path) == 0 {
		return 0
	}
	return s.graph.path[0].FromPad
}

// find returns the control of a number, or nil.
func (c *v4l2Controls) find(id uint32) *videodev.Setting {
	if i := slices.IndexFunc(c.list, func(s videodev.Setting) bool { return s.ID == id }); i >= 0 {
		return &c.list[i]
	}
	return nil
}

// byID returns the first control of a number, or nil.
func (t *v4l2Settings) byID(id uint32) (*v4l2Controls, *videodev.Setting) {
	for _, d := range t.devices {
		if s := d.find(id); s != nil {
			return d, s
		}
	}
	return nil, nil
}

// named returns the control of a name, or of a number with 0x before it.
func (t *v4l2Settings) named(name string) (*v4l2Controls, *videodev.Setting, error) {
	if id, err := strconv.ParseUint(name, 0, 32); err == nil {
		if d, s := t.byID(uint32(id)); s != nil {
			return d, s, nil
		}
	}
	var names []string
	for _, d := range t.devices {
		for i := range d.list {
			if d.list[i].Key() == videodev.Key(name) {
				return d, &d.list[i], nil
			}
			if d.list[i].Writable() {
				names = append(names, d.list[i].Key())
			}
		}
	}
	return nil, nil, fmt.Errorf("%w %s: there is none: there are %v", videodev.ErrControl, name, names)
}

// apply sets what makes NVIDIA's driver deliver pixels and use controls, the configured controls, exposure and gain.
func (t *v4l2Settings) apply(s *v4l2Session) error {
	c := s.camera
	for id, value := range map[uint32]int64{videodev.TegraBypass: 0, videodev.TegraOverride: 1} {
		if of, setting := t.byID(id); setting != nil && setting.Writable() {
			if err := videodev.Set(of.device, videodev.Value{Setting: setting, Value: value}); err != nil {
				c.cfg.Logger.Debug("a control of NVIDIA's driver cannot be set", "source", c.cfg.Name, "error", err)
			}
		}
	}
	if err := t.configure(s, setSwitches, setBlanking, setOthers); err != nil {
		return err
	}
	c.mu.Lock()
	exposure, gain := c.exposure, c.gain
	c.mu.Unlock()
	return t.expose(exposure, gain)
}

// Steps in which configured controls are set.
const (
	setFormats  = iota // before the format: what changes it
	setSwitches        // what may allow others to be set, such as the end of an automatic mode
	setBlanking        // what changes the ranges of others
	setOthers
)

func stepOf(s *videodev.Setting) int {
	switch {
	case s.ChangesFormat():
		return setFormats
	case s.Chooses():
		return setSwitches
	case s.ID == videodev.VerticalBlank || s.ID == videodev.HorizontalBlank:
		return setBlanking
	}
	return setOthers
}

// configure sets the configured controls of some steps. It reads all controls before each step, and after the last one.
func (t *v4l2Settings) configure(s *v4l2Session, steps ...int) error {
	controls := s.camera.cfg.Controls
	for _, step := range steps {
		if len(controls) == 0 {
			break
		}
		t.read(s)
		for _, name := range slices.Sorted(maps.Keys(controls)) {
			of, setting, err := t.named(name)
			if err != nil {
				return err
			}
			if stepOf(setting) != step {
				continue
			}
			v, err := setting.Parse(controls[name])
			if err != nil {
				return err
			}
			if err := videodev.Set(of.device, videodev.Value{Setting: setting, Value: v}); err != nil {
				return err
			}
		}
	}
	t.read(s)
	return nil
}

// rate returns the camera's rate, after setting the configured one if set is true: by NVIDIA's control, by VIDIOC_S_PARM,
// or by the vertical blanking of a sensor. A device that tells no rate has the configured one.
func (t *v4l2Settings) rate(s *v4l2Session, l videodev.Layout, set bool) (pipeline.Rate, error) {
	want := s.camera.cfg.Rate
	if q := t.perSecond; q.setting != nil {
		if want.Num > 0 && set {
			v := q.setting.Nearest(q.unit * float64(want.Num) / float64(want.Den))
			if err := videodev.Set(q.of.device, videodev.Value{Setting: q.setting, Value: v}); err != nil {
				return want, err
			}
		}
		v, err := videodev.Get(q.of.device, q.setting)
		if err != nil || v <= 0 || q.unit < 1 {
			return want, err
		}
		return s.rateIs(want, videodev.Fraction{Numerator: uint32(q.unit), Denominator: uint32(v)}, l)
	}
	if frame, can, known := videodev.Rate(s.device, s.kind); known {
		if want.Num > 0 && can && set {
			var err error
			if frame, err = videodev.SetRate(s.device, s.kind, videodev.Fraction{Numerator: uint32(want.Den), Denominator: uint32(want.Num)}); err != nil {
				return want, err
			}
		}
		return s.rateIs(want, frame, l)
	}
	for _, of := range t.devices {
		second, blank := 0.0, of.find(videodev.VerticalBlank)
		if of.sensor && blank != nil {
			second = t.linesPerSecond(s, of)
		}
		f, err := videodev.Pad(of.device, s.sensorPad())
		if second == 0 || err != nil {
			continue
		}
		if want.Num > 0 && set && blank.Writable() {
			v := blank.Nearest(second*float64(want.Den)/float64(want.Num) - float64(f.Height))
			if err := videodev.Set(of.device, videodev.Value{Setting: blank, Value: v}); err != nil {
				return want, err
			}
		}
		v, err := videodev.Get(of.device, blank)
		if lines := int64(f.Height) + v; err == nil && lines > 0 {
			return s.rateIs(want, videodev.Fraction{Numerator: uint32(lines * 1000), Denominator: uint32(second * 1000)}, l)
		}
	}
	return want, nil
}

// rateIs refuses a rate that is far from the wanted one.
func (s *v4l2Session) rateIs(want pipeline.Rate, frame videodev.Fraction, l videodev.Layout) (pipeline.Rate, error) {
	rate, near := nearRate(want, frame)
	if !near {
		return want, fmt.Errorf("%w: %s frames a second: it makes %.4g of them: it offers %s", pipeline.ErrFormat, want,
			float64(frame.Denominator)/float64(frame.Numerator), videodev.Offer(s.device, l.Pixels))
	}
	return rate, nil
}

// expose sets exposure and gain, each unless it is 0, in one request if one device has both.
func (t *v4l2Settings) expose(exposure time.Duration, gain float64) error {
	byDevice := map[*v4l2Controls][]videodev.Value{}
	add := func(q *v4l2Quantity, v float64, what string) error {
		if v == 0 {
			return nil
		}
		if q.setting == nil {
			return fmt.Errorf("%w: it has none for the %s whose unit is known", videodev.ErrControl, what)
		}
		for _, m := range q.manual { // before, because the other one may be inactive until then
			if err := videodev.Set(q.of.device, m); err != nil {
				return err
			}
		}
		byDevice[q.of] = append(byDevice[q.of], videodev.Value{Setting: q.setting, Value: q.setting.Nearest(v * q.unit)})
		return nil
	}
	if err := both(add(&t.exposure, exposure.Seconds(), "exposure"), add(&t.gain, gain, "gain")); err != nil {
		return err
	}
	for of, list := range byDevice {
		if err := videodev.Set(of.device, list...); err != nil {
			return err
		}
	}
	return nil
}

// now returns exposure and gain. If the device has only one of them, the other is the frame period, or 1.
func (t *v4l2Settings) now(period time.Duration) (exposure time.Duration, gain float64, err error) {
	if t.exposure.setting == nil && t.gain.setting == nil {
		return 0, 0, fmt.Errorf("%w: it has none for exposure or gain whose unit is known", videodev.ErrControl)
	}
	get := func(q *v4l2Quantity, without float64) (float64, error) {
		if q.setting == nil {
			return without, nil
		}
		v, err := videodev.Get(q.of.device, q.setting)
		return float64(v) / q.unit, err
	}
	seconds, err := get(&t.exposure, period.Seconds())
	if err != nil {
		return 0, 0, err
	}
	gain, err = get(&t.gain, 1)
	return time.Duration(seconds * float64(time.Second)), gain, err
}

// close waits for calls that others make, which are watched, and closes the sensor's device file.
func (t *v4l2Settings) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	var errs []error
	for _, d := range t.devices {
		if d.sensor {
			errs = append(errs, d.device.Close())
		}
	}
	t.devices = nil
	return errors.Join(errs...)
}

// whileOpen does work with the controls of the current session, and waits for it only as long as bounded does. If it
// returns an error, work may still be going on.
func (c *V4L2Camera) whileOpen(work func(*v4l2Settings) error) error {
	s := c.current()
	if s == nil {
		return ErrReopening
	}
	t := &s.settings
	if t.stuck.Load() {
		return fmt.Errorf("%w: %s of %s", ErrHangs, callName(videodev.SetControls), c.cfg.Device)
	}
	w := &boundedWork{given: func(*hungCall) { t.stuck.Store(true) }, late: func() error { t.stuck.Store(false); return nil }}
	w.do = func() error {
		t.mu.Lock() // while another call holds it, that one is watched
		defer t.mu.Unlock()
		if t.closed {
			return ErrReopening
		}
		if w.givenUp() { // the caller was told that it is not done
			return ErrHangs
		}
		return work(t)
	}
	return c.bounded(context.Background(), w, &t.watched)
}

// Adjustable reports whether exposure and gain can be changed.
func (c *V4L2Camera) Adjustable() (exposure, gain bool) {
	var e, g bool
	err := c.whileOpen(func(t *v4l2Settings) error {
		e, g = t.exposure.setting != nil, t.gain.setting != nil
		return nil
	})
	if err != nil {
		return false, false
	}
	return e, g
}

// Exposure returns the camera's exposure and gain as read from its controls. If it has only one of them, the other is the
// frame period, or 1. The error wraps ErrReopening, ErrHangs, videodev.ErrControl or that of the device.
func (c *V4L2Camera) Exposure() (exposure time.Duration, gain float64, err error) {
	var e time.Duration
	var g float64
	err = c.whileOpen(func(t *v4l2Settings) (err error) {
		e, g, err = t.now(c.format.Rate.Period())
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return e, g, nil
}

// SetExposure changes exposure and gain while the camera is running; 0 keeps the current value. It returns the Sequence of
// a frame from which on both surely apply; V4L2 does not tell the first one. The values are kept when the camera is
// reopened. SetExposure waits for the device, but delays no frame. Errors are those of Exposure.
func (c *V4L2Camera) SetExposure(exposure time.Duration, gain float64) (from uint64, err error) {
	if err := c.whileOpen(func(t *v4l2Settings) error { return t.expose(exposure, gain) }); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exposure, c.gain = cmp.Or(exposure, c.exposure), cmp.Or(gain, c.gain)
	return c.states.last.Load() + settleFrames, nil
}
