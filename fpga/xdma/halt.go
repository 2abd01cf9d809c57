// SPDX-License-Identifier: Apache-2.0

package xdma

import "github.com/tegracast/tegracast/fpga"

// HaltList returns the accesses that stop all channels without the driver, when memory is about to be taken away from
// them: they clear Run of each channel (PG195, channel control). Each channel completes its current descriptor.
func (d *Device) HaltList() (list []fpga.HaltOp) {
	for _, c := range d.channels() {
		list = append(list, fpga.HaltOp{BAR: d.bar, Offset: c.base + regControlW1C, Value: controlRun})
	}
	return list
}
