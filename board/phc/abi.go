// SPDX-License-Identifier: Apache-2.0

package phc

// The numbers and structs of linux/ptp_clock.h, in the first version of each call, which every kernel has that knows it
// (TestLayout).
const (
	callCapabilities = 0x80503d01 // PTP_CLOCK_GETCAPS
	callOffset       = 0x43403d05 // PTP_SYS_OFFSET
	callPrecise      = 0xc0403d08 // PTP_SYS_OFFSET_PRECISE, Linux 4.6
	callExtended     = 0xc4c03d09 // PTP_SYS_OFFSET_EXTENDED, Linux 5.0
)

const maxSamples = 25 // PTP_MAX_SAMPLES

// capabilities is struct ptp_clock_caps, whose size alone matters: all clocks have those of reading.
type capabilities struct {
	most  int32 // largest change of the rate, parts in 10^9
	other [19]int32
}

// moment is struct ptp_clock_time.
type moment struct {
	seconds     int64
	nanoseconds uint32
	_           uint32
}

func (m moment) ns() int64 { return m.seconds*1e9 + int64(m.nanoseconds) }

// offsets is struct ptp_sys_offset: the machine's clock and the adapter's in turn, the machine's last.
type offsets struct {
	samples uint32
	_       [3]uint32
	at      [2*maxSamples + 1]moment
}

// extended is struct ptp_sys_offset_extended: the machine's clock, the adapter's, and the machine's again.
type extended struct {
	samples uint32
	_       [3]uint32
	at      [maxSamples][3]moment
}

// precise is struct ptp_sys_offset_precise: clocks at one moment, by hardware.
type precise struct {
	device, machine, raw moment
	_                    [4]uint32
}
