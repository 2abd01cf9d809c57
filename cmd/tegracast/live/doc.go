// SPDX-License-Identifier: Apache-2.0

// Package live shows how an appliance runs: on a terminal as a block of lines at its lower end, which is drawn again each second, above
// which everything else scrolls; where it cannot be drawn as a line a second; elsewhere as a line a minute in the log.
package live
