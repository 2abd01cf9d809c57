// SPDX-License-Identifier: Apache-2.0

package appliance

// controlPanels returns the panels of all open sources. It is for the page.
type controlPanels func() []*controlPanel

// Exposures returns the settings of the cameras that can be adjusted.
func (all controlPanels) Exposures() (list []exposureState) {
	for _, p := range all() {
		if e, can := p.Exposure(); can {
			list = append(list, e)
		}
	}
	return list
}

// WhiteBalances returns the white balance of each isp with a colour sensor.
func (all controlPanels) WhiteBalances() (list []whiteBalanceState) {
	for _, p := range all() {
		list = append(list, p.WhiteBalance()...)
	}
	return list
}

// SetExposure sets the exposure of a source. It returns errNoControl if no source of that name is a camera.
func (all controlPanels) SetExposure(source string, s exposureSetting) error {
	for _, p := range all() {
		if p.name == source {
			return p.SetExposure(s)
		}
	}
	return errNoControl
}

// SetWhiteBalance sets the white balance of an isp. It returns errNoControl if there is none of that name with a colour
// sensor.
func (all controlPanels) SetWhiteBalance(isp string, s whiteBalanceSetting) error {
	for _, p := range all() {
		if found, err := p.SetWhiteBalance(isp, s); found {
			return err
		}
	}
	return errNoControl
}
