// SPDX-License-Identifier: Apache-2.0

// Package linestest provides simulated lines of a board for tests. They do not show debouncing or voltages
// (docs/stand-ins.md).
package linestest
