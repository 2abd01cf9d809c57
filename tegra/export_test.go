// SPDX-License-Identifier: Apache-2.0

package tegra

// NewFake opens a device over a module in the process; invalidate tells it that memory is about to change.
func NewFake() (d *Device, invalidate func(addr uintptr, size int), err error) {
	m, err := newFakeModule()
	if err != nil {
		return nil, nil, err
	}
	d, err = newDevice("fake", m)
	return d, m.invalidate, err
}
