// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"github.com/tegracast/tegracast/cmd/tegracast/control"
	"github.com/tegracast/tegracast/pipeline/web"
)

// panels are what can be set by hand, of each source.
func (a *Appliance) panels() (list []*control.Panel) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.flows {
		if f.panel != nil {
			list = append(list, f.panel)
		}
	}
	return list
}

// Exposures implements web.Settings.
func (a *Appliance) Exposures() (list []web.Exposure) {
	for _, p := range a.panels() {
		if e, can := p.Exposure(); can {
			list = append(list, e)
		}
	}
	return list
}

// WhiteBalances implements web.Settings.
func (a *Appliance) WhiteBalances() (list []web.WhiteBalance) {
	for _, p := range a.panels() {
		list = append(list, p.WhiteBalance()...)
	}
	return list
}

// SetExposure implements web.Settings.
func (a *Appliance) SetExposure(source string, s web.ExposureSetting) error {
	for _, p := range a.panels() {
		if p.Name == source {
			return p.SetExposure(s)
		}
	}
	return web.ErrNoControl
}

// SetWhiteBalance implements web.Settings.
func (a *Appliance) SetWhiteBalance(isp string, s web.WhiteBalanceSetting) error {
	for _, p := range a.panels() {
		if found, err := p.SetWhiteBalance(isp, s); found {
			return err
		}
	}
	return web.ErrNoControl
}
