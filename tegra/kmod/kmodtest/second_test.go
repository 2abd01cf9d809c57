// SPDX-License-Identifier: Apache-2.0

package kmodtest_test

import (
	"path/filepath"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
)

// TestSecond has a second look at what a process without rights gets through the open device: the kernel's memory, a
// reset's waiters, an engine that is left at work, buffers that may only be read.
func TestSecond(t *testing.T) {
	b := build(t, "arm64")
	dir := filepath.Join(t.TempDir(), "second")
	if err := vjetson.BuildModule(t.Context(), b.kernel, "testdata/second", dir); err != nil {
		t.Fatal(err)
	}
	for name, w := range b.ways() {
		t.Run(name, func(t *testing.T) { // one after the other: they measure the machine's memory
			m := b.start(t, w, vjetson.Config{Edu: true, Memory: 640, Devices: []string{secondPort, whole}})
			m.load(filepath.Join(dir, "second.ko"))
			if _, err := m.Expect(`arm-smmu-v3 .*event 0x10`); err != nil { // an engine that is left at work
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
