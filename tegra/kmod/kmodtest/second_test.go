// SPDX-License-Identifier: Apache-2.0

package kmodtest_test

import (
	"path/filepath"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
)

// TestSecond makes further attacks by a process without rights through the open device: on the kernel's memory, by
// waiters for a reset, by an engine that is left running, and on read-only buffers.
func TestSecond(t *testing.T) {
	b := build(t, "arm64")
	dir := filepath.Join(t.TempDir(), "second")
	if err := vjetson.BuildModule(t.Context(), b.kernel, "testdata/second", dir); err != nil {
		t.Fatal(err)
	}
	for name, w := range b.ways() {
		t.Run(name, func(t *testing.T) { // sequentially, because they measure the machine's memory
			m := b.start(t, w, vjetson.Config{Edu: true, Memory: 640, Devices: []string{secondPort, whole}})
			m.load(filepath.Join(dir, "second.ko"))
			if _, err := m.Expect(`arm-smmu-v3 .*event 0x10`); err != nil { // an engine that is left running
				t.Fatal(err)
			}
			env := m.take("0000:02:00.0")
			m.guestOn(t, env, "^TestSecondFunction")
			m.guest(t, "^TestSecondEdu")
			m.guest(t, "^TestSecondNotifiers$")
			m.guest(t, "^TestUsable$")
		})
	}
}
