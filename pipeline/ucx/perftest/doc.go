// SPDX-License-Identifier: Apache-2.0

// Package perftest compares benchmark results with ucx_perftest. Both ends of it run on this machine: it does not show
// a network.
package perftest
