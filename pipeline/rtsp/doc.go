// SPDX-License-Identifier: Apache-2.0

// Package rtsp lets readers take RTP streams by RTSP (RFC 2326; docs/rtsp.md). gortsplib has the sessions. The packets are those of
// pipeline/rtp/send, a train for a frame, and a reader is one more of its destinations.
package rtsp
