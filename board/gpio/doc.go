// SPDX-License-Identifier: Apache-2.0

// Package gpio drives the lines of a camera: trigger, strobe, reset of the FPGA and a status LED. It also takes the times
// of edges, of an external trigger or of PPS. It needs Linux 5.10, which has the second version of the GPIO character
// device's interface.
//
// An open line belongs to this process, and other processes find it busy. Close restores its direction and, for an
// output, its value. If the process dies instead, the kernel releases the line and leaves it as it is.
package gpio
