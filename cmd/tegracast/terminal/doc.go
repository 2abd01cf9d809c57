// SPDX-License-Identifier: Apache-2.0

// Package terminal provides the commands' user interface: the block of lines that shows a running appliance, the
// summary at its end, JSON for scripts, usage errors and manual pages.
//
// On a terminal the block stays at the bottom and is redrawn every second, and all other output scrolls above it. A
// terminal that cannot do this gets a line per second, and a log gets a line per minute.
package terminal
