// SPDX-License-Identifier: Apache-2.0

// Package frames sends frames of a pipeline, and what its stages found in them, to other machines and processes by UCX.
//
// A [Server] listens at an address. Each of its streams is a [Sink], which is an output of a graph. A [Receiver] connects, takes one
// stream by its name, and is a source of frames. Pixels leave from the frame's slot and come into a slot of the receiver; nothing
// copies them in between. The receiver says how many frames it takes (credits). A receiver without credits loses the frame; nobody
// waits for it. docs/ucx.md describes the protocol.
package frames
