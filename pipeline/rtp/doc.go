// SPDX-License-Identifier: Apache-2.0

// Package rtp is what RTP streams of frames look like on the wire, the same for whoever sends and receives them.
//
// A packetizer turns a frame into a train of packets, once: RFC 4175 for raw video, RFC 2435 for JPEG, RFC 6184 for H.264, and a format of
// our own for results. Headers lie in memory of the train, payloads in the frame's slot; nothing is copied before the
// kernel, and nothing is allocated per frame. The package also has RTCP (RFC 3550 §6) with the checksum packet, the
// header extension abs-capture-time (RFC 8285), and session descriptions, written and read (SDP: RFC 8866, RFC 4570,
// RFC 6064, RFC 7273). docs/rtp.md describes all of it byte for byte.
package rtp
