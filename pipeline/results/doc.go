// SPDX-License-Identifier: Apache-2.0

// Package results sends the results of stages as lines of JSON over UDP and TCP (docs/results-output.md). Package rtp
// sends the same as an RTP stream.
package results
