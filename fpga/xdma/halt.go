// SPDX-License-Identifier: Apache-2.0

package xdma

import "github.com/tegracast/tegracast/fpga"

// HaltList returns the register accesses with which somebody else can stop all channels, without this package, before
// memory is taken away from the engine. They clear the Run bit of each channel (PG195, channel control); the channel
// still completes its current descriptor.
func (d *Device) HaltList() (list []fpga.HaltOp) {
	for _, c := range d.channels() {
		list = append(list, fpga.HaltOp{BAR: d.bar, Offset: c.base + regControlW1C, Value: controlRun})
	}
	return list
}
