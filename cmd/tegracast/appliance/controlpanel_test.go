// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"errors"
	"fmt"
	"image/png"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// red returns the mean of red in an output's picture, relative to green.
func (s *reloads) red(t *testing.T, name string) float64 {
	t.Helper()
	file, err := s.pictures.takeStill(t.Context(), name, "png")
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(file.File))
	if err != nil {
		t.Fatal(err)
	}
	var red, green float64
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			r, g, _, _ := picture.At(x, y).RGBA()
			red, green = red+float64(r), green+float64(g)
		}
	}
	return red / green
}

// TestSettings checks that the camera's registers and the isp's gains take the requested values while frames come, with
// and without loops. Invalid values are refused, and a loop resumes on request.
func TestSettings(t *testing.T) {
	p := rtptest.EvenPorts(t, 2)
	s := startReloads(t, fmt.Sprintf(`
web: {listen: none}
memory: host
sources:
  - {name: free, model: {width: 64, height: 16, rate: 100}}
  - {name: kept, model: {width: 64, height: 16, rate: 100}}
isp:
  - {name: plain, from: free, workers: 1}
  - {name: eye, from: kept, workers: 1, auto: {exposure: {target: 0.1}, white_balance: {}}}
outputs:
  - {name: one, from: plain, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
  - {name: two, from: eye, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
`, p[0], p[1]))
	set := controlPanels(s.flows.panels)
	s.streaming(t, "one")
	before := s.red(t, "one")
	for i, source := range []string{"free", "kept"} {
		if err := set.SetExposure(source, exposureSetting{Microseconds: 1500, Gain: 2}); err != nil {
			t.Fatal(err)
		}
		if e := set.Exposures()[i]; e.Source != source || e.Microseconds != 1500 || e.Gain != 2 || e.Longest != 10000 ||
			!e.HasExposure || !e.HasGain || e.HasAuto != (i == 1) || e.Auto {
			t.Errorf("%+v", e)
		}
	}
	for i, isp := range []string{"plain", "eye"} {
		if err := set.SetWhiteBalance(isp, whiteBalanceSetting{Red: 4, Blue: 1}); err != nil {
			t.Fatal(err)
		}
		if w := set.WhiteBalances()[i]; w.ISP != isp || w.Red != 4 || w.Blue != 1 || w.HasAuto != (i == 1) || w.Auto {
			t.Errorf("%+v", w)
		}
	}
	s.streaming(t, "one")
	if after := s.red(t, "one"); after < 1.3*before {
		t.Errorf("red is %.2f of green, and was %.2f", after, before)
	}
	s.streaming(t, "two")
	if e := set.Exposures()[1]; e.Microseconds != 1500 {
		t.Errorf("the loop has set it again: %+v", e)
	}
	if err := errors.Join(set.SetExposure("kept", exposureSetting{Auto: true}), set.SetWhiteBalance("eye", whiteBalanceSetting{Auto: true})); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); set.Exposures()[1].Microseconds == 1500 || set.WhiteBalances()[1].Red == 4; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("the loops do not go on")
		}
	}
	for what, err := range map[string]error{
		"20000 µs: must be up to": set.SetExposure("free", exposureSetting{Microseconds: 20000}),
		"1e+300 µs: must be":      set.SetExposure("free", exposureSetting{Microseconds: 1e300}), // too large for a duration
		"above 0":                 set.SetExposure("free", exposureSetting{}),
		"nothing controls":        set.SetExposure("free", exposureSetting{Auto: true}),
		"must be from 1/4096":     set.SetWhiteBalance("plain", whiteBalanceSetting{Red: 100, Blue: 1}),
		"gains of red and blue":   set.SetWhiteBalance("eye", whiteBalanceSetting{Red: 1}),
		"auto: {white_balance":    set.SetWhiteBalance("plain", whiteBalanceSetting{Auto: true}),
		"nothing of that name":    set.SetWhiteBalance("free", whiteBalanceSetting{Red: 1, Blue: 1}),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	if err := set.SetExposure("nobody", exposureSetting{Gain: 1}); !errors.Is(err, errNoControl) {
		t.Error(err)
	}
	for _, o := range s.end(t).Outputs {
		if o.Captured != o.Delivered+o.Drops() {
			t.Errorf("%+v", o)
		}
	}
}
