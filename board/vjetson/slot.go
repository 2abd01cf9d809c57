// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"errors"
	"fmt"
)

// device is a device in a hot-plug slot, in QEMU's format.
type device struct {
	Driver  string         `json:"driver"`
	ID      string         `json:"id"`
	Bus     string         `json:"bus"`
	Socket  *socketAddress `json:"socket,omitempty"`
	Timeout int64          `json:"x-msg-timeout,omitempty"` // ms
}

type socketAddress struct {
	Type string `json:"type"`
	Path string `json:"path"`
}

func (m *Machine) slot(n int) (device, error) {
	switch {
	case len(m.slots) == 0:
		return device{}, errors.New("vjetson: the machine has no device to plug: set Config.Edu or Config.Functions")
	case n < 0 || n >= len(m.slots):
		return device{}, fmt.Errorf("vjetson: slot %d, want 0 to %d", n, len(m.slots)-1)
	}
	return m.slots[n], nil
}

// HotUnplug unplugs the first slot's device. See HotUnplugSlot.
func (m *Machine) HotUnplug(ctx context.Context) error { return m.HotUnplugSlot(ctx, 0) }

// HotPlug plugs the first slot's device in again.
func (m *Machine) HotPlug(ctx context.Context) error { return m.HotPlugSlot(ctx, 0) }

// HotUnplugSlot presses the attention button of slot n, which has function n or Edu's device, and waits until the guest
// has released the device, which takes Linux 5 s. QEMU 11.1 exits when a function with MSI-X is unplugged; a function
// without MSI-X, but with MSI, can be unplugged.
func (m *Machine) HotUnplugSlot(ctx context.Context, n int) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	d, err := m.slot(n)
	if err != nil {
		return err
	}
	return m.qmp.unplug(ctx, d.ID)
}

// HotPlugSlot plugs the device into slot n again. A function's server is contacted as at the start.
func (m *Machine) HotPlugSlot(ctx context.Context, n int) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	d, err := m.slot(n)
	if err != nil {
		return err
	}
	return m.qmp.execute(ctx, "device_add", d)
}
