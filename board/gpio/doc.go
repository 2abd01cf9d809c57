// SPDX-License-Identifier: Apache-2.0

// Package gpio drives the GPIO lines of a camera: trigger, strobe, reset of the FPGA and a status LED. It also reports
// the times of edges, of an external trigger or of PPS. It requires Linux 5.10, which introduced the second version of
// the GPIO character device's interface.
//
// An open line belongs to this process, and is busy for other processes. Closing an Output restores the line's previous
// direction and, if that was output, its value. If the process dies instead, the kernel releases the line and leaves it
// as it is.
package gpio
