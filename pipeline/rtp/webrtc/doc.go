// SPDX-License-Identifier: Apache-2.0

// Package webrtc shows outputs of H.264 in browsers. Sessions are set up by WHEP (draft-ietf-wish-whep) and carried by
// pion. In addition to the pictures, a session sends the results of their frames, each with the RTP timestamp of its
// frame (docs/watch.md). Streams are published to servers by WHIP (RFC 9725).
package webrtc
