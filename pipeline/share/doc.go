// SPDX-License-Identifier: Apache-2.0

// Package share gives the frames of an output to other processes of the machine without a copy: they map the memory that the frames lie in,
// and learn by a Unix socket which frame is where. docs/share.md is the protocol.
//
// A Sink is the output. A Client is a consumer in Go; clients in C and Python are in the folders c and python.
package share
