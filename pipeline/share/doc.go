// SPDX-License-Identifier: Apache-2.0

// Package share passes the frames of an output to other processes of the machine without copying: they map the memory
// that contains the frames, and learn over a Unix socket where each frame is. docs/share.md describes the protocol.
//
// A Sink is the output. A Client is a consumer in Go; the folders c and python contain clients in C and Python.
package share
