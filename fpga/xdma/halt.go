// SPDX-License-Identifier: Apache-2.0

package xdma

import "github.com/tegracast/tegracast/fpga"

// HaltList is what stops all channels without the driver, when the memory is taken from under them: Run of each is cleared
// (PG195, channel control). Each completes the descriptor that it is at.
func (d *Device) HaltList() (list []fpga.HaltOp) {
	for _, c := range d.channels() {
		list = append(list, fpga.HaltOp{BAR: d.bar, Offset: c.base + regControlW1C, Value: controlRun})
	}
	return list
}
