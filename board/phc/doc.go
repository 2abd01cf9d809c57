// SPDX-License-Identifier: Apache-2.0

// Package phc reads the clock of a network adapter (PTP hardware clock), which PTP sets to TAI, and finds out what
// this machine's clock read at the same moment (linux/ptp_clock.h). It sets no clock: it opens the device file for
// reading only.
package phc
