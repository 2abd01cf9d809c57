// SPDX-License-Identifier: Apache-2.0

// Package webrtc shows outputs of H.264 in browsers: WHEP (draft-ietf-wish-whep) begins a session, pion carries it. Beside the pictures a
// session has the results of their frames, each with the RTP timestamp of its frame (docs/webrtc.md). Servers take
// the stream by WHIP (RFC 9725).
package webrtc
