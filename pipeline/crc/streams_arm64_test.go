// SPDX-License-Identifier: Apache-2.0

package crc

import "testing"

// TestFast fails where the other tests would test hash/crc32: QEMU's processor has the instructions, as a Jetson's.
func TestFast(t *testing.T) {
	if !fast {
		t.Error("this processor has no CRC32 or no PMULL")
	}
}
