// SPDX-License-Identifier: Apache-2.0

// Package channel is the protocol between the virtual Jetson's harness and the agent in the machine. It carries frames of
// several kinds for many jobs over the byte stream of one virtio-serial port.
//
// A job starts with a Request from the harness. For OpWrite the harness sends the file in Data frames and then Eof. The
// agent sends Stdout frames (also for the bytes of a file that is read) and Stderr frames, and ends every job with one
// Exit. Kill ends a running command, or a write whose file remains incomplete. The agent's first frame is a Hello. A
// Jetson has no such port, so the channel does not show anything about a board.
package channel
