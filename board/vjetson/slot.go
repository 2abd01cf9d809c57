package vjetson

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"tegracast/board/vjetson/ivshmem"
)

// device is what stands in a hot-plug slot, as QEMU takes it.
type device struct {
	Driver  string         `json:"driver"`
	ID      string         `json:"id"`
	Bus     string         `json:"bus"`
	Chardev string         `json:"chardev,omitempty"`
	Vectors int            `json:"vectors,omitempty"`
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
		return device{}, errors.New("vjetson: the machine has no device to plug: set Config.Edu, Config.Card or Config.Functions")
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
	if err := m.qmp.unplug(ctx, d.ID); err != nil || m.card == nil {
		return err
	}
	return m.plugHoles(ctx)
}

// HotPlugSlot puts the device into slot n again. A function's server is asked as at the start.
func (m *Machine) HotPlugSlot(ctx context.Context, n int) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	d, err := m.slot(n)
	if err != nil {
		return err
	}
	if m.card != nil {
		if err := m.card.shared.Introduce(m.card.guest, ivshmem.Guest); err != nil {
			return err
		}
	}
	return m.qmp.do(ctx, "device_add", d)
}

// plugHoles gives QEMU descriptors in place of those that an unplugged ivshmem device has closed: QEMU 7.2 goes on to
// watch their numbers for the device that it has freed, and ends with a segmentation fault when they come to life again.
func (m *Machine) plugHoles(ctx context.Context) error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("vjetson: eventfd: %w", err)
	}
	never := os.NewFile(uintptr(fd), "never")
	defer never.Close()
	for range 2 * ivshmem.Vectors {
		if _, err := m.qmp.doWith(ctx, "add-fd", nil, never); err != nil {
			return err
		}
	}
	return nil
}
