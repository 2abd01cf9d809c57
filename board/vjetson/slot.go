// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"errors"
	"fmt"
)

// device is what stands in a hot-plug slot, as QEMU takes it.
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

// slot returns what stands in slot n.
func (m *Machine) slot(n int) (device, error) {
	switch {
	case len(m.slots) == 0:
		return device{}, errors.New("vjetson: the machine has no device to plug: set Config.Edu or Config.Functions")
	case n < 0 || n >= len(m.slots):
		return device{}, fmt.Errorf("vjetson: slot %d, want 0 to %d", n, len(m.slots)-1)
	}
	return m.slots[n], nil
}

// HotUnplug takes the first slot's device away, as HotUnplugSlot does.
func (m *Machine) HotUnplug(ctx context.Context) error { return m.HotUnplugSlot(ctx, 0) }

// HotPlug puts the first slot's device back.
func (m *Machine) HotPlug(ctx context.Context) error { return m.HotPlugSlot(ctx, 0) }

// HotUnplugSlot presses the attention button of slot n, which has function n, and waits until the guest has let the device
// go: Linux takes 5 s. QEMU 11.1 ends when a function that has MSI-X is unplugged: one with MSI alone can be.
func (m *Machine) HotUnplugSlot(ctx context.Context, n int) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	d, err := m.slot(n)
	if err != nil {
		return err
	}
	return m.qmp.unplug(ctx, d.ID)
}

// HotPlugSlot puts the device into slot n again. A function's server is asked as at the start.
func (m *Machine) HotPlugSlot(ctx context.Context, n int) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	d, err := m.slot(n)
	if err != nil {
		return err
	}
	return m.qmp.do(ctx, "device_add", d)
}
