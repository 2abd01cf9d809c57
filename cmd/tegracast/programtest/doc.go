// SPDX-License-Identifier: Apache-2.0

// Package programtest builds the program for tests, starts it and its peers, and reads their output. The FPGA model
// stands for a camera there: such tests do not show what hardware does.
package programtest
