// SPDX-License-Identifier: Apache-2.0

package control

import "github.com/tegracast/tegracast/pipeline/web"

// Panels are those of all sources that there are now. They implement web.Settings.
type Panels func() []*Panel

// Exposures implements web.Settings.
func (all Panels) Exposures() (list []web.Exposure) {
	for _, p := range all() {
		if e, can := p.Exposure(); can {
			list = append(list, e)
		}
	}
	return list
}

// WhiteBalances implements web.Settings.
func (all Panels) WhiteBalances() (list []web.WhiteBalance) {
	for _, p := range all() {
		list = append(list, p.WhiteBalance()...)
	}
	return list
}

// SetExposure implements web.Settings.
func (all Panels) SetExposure(source string, s web.ExposureSetting) error {
	for _, p := range all() {
		if p.name == source {
			return p.SetExposure(s)
		}
	}
	return web.ErrNoControl
}

// SetWhiteBalance implements web.Settings.
func (all Panels) SetWhiteBalance(isp string, s web.WhiteBalanceSetting) error {
	for _, p := range all() {
		if found, err := p.SetWhiteBalance(isp, s); found {
			return err
		}
	}
	return web.ErrNoControl
}
