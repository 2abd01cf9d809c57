// SPDX-License-Identifier: Apache-2.0

package kmodtest_test

import (
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
)

// TestAttack lets a process without rights, but with the open device, try to get what it must not: other processes'
// memory, the kernel's memory, and a crash of the machine.
func TestAttack(t *testing.T) {
	b := build(t, "arm64")
	for name, w := range b.ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := b.start(t, w, vjetson.Config{
				Edu: true, Memory: 640, Append: "secretmem.enable=1 rodata=full",
				Modules: []string{"fuse", "zram"}, Devices: []string{secondPort, whole},
			})
			m.guest(t, "^Test(ReadOnlyDescriptor|Forked|Duplicated|Passed|Userfaultfd|Untouched|Quiet|Restless|Pressure|Taken|SlowHole|Dummy|ManyPins)$")
			m.guest(t, "^Test(ReadOnlyFile|Sealed|ZeroPage|VDSO)$")
			m.guestOn(t, m.take("0000:02:00.0"), "^Test(HaltMSIX|Resets)$")
			m.guest(t, "^Test(Kinds|StalledFuse|StarvedChecks|Owner|CloseAgainstDiscard|WorkersAgainstDiscard)$")
			if w.provider == "" { // NVIDIA's provider pins such pages by its own rules
				m.guest(t, "^Test(CopiedPrivateFile|PinAgainstDroppedFile)$")
			}
			m.changes(t)
			m.discards(t, w)
			m.guest(t, "^Test(Stale|HugeView|PinAgainstMunmap|PinWindow)$") // a module with these faults crashes the machine
			m.guest(t, "^TestUsable$")
		})
	}
}

// changes replaces pages while they are pinned. The device may be reading them when the pin is revoked.
func (m machine) changes(t *testing.T) {
	t.Helper()
	if _, err := m.Expect(blockedDMA); err != nil {
		t.Fatal(err)
	}
	m.guest(t, "^TestPinAgainstChange$")
}

// discards discards memory while it is pinned. A provider of nv-p2p runs its own operations between its registration and
// the module's takeover, which makes the kernel warn (docs/module.md).
func (m machine) discards(t *testing.T, w way) {
	t.Helper()
	if w.provider != "" {
		if _, err := m.Expect(`WARNING: .* at mm/mmu_notifier.c:\d+ mmu_notifier_put`); err != nil {
			t.Fatal(err)
		}
	}
	m.guest(t, "^TestPinAgainstDiscard$")
}
