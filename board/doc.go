// SPDX-License-Identifier: Apache-2.0

// Package board identifies the machine: a Jetson by its device tree, its temperatures, power rails and power mode, and
// whether it is throttled. It reads /proc, /sys and /etc through an fs.FS, so it also works on a copy of another
// board's files. It writes nothing.
package board
