// SPDX-License-Identifier: Apache-2.0

// Package frames sends frames of a pipeline, and the results of its stages, to other machines and processes over UCX.
//
// A [Server] listens at an address. Each of its streams is a [Sink], which is an output of a graph. A [Receiver]
// connects, subscribes to one stream by name, and is a source of frames. Pixels travel directly from the frame's slot
// into a slot of the receiver, without copies in between. The receiver says how many frames it can take (credits). A
// receiver without credits loses the frame; nothing waits for it. docs/ucx.md describes the protocol.
package frames
