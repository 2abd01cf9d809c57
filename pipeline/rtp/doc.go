// SPDX-License-Identifier: Apache-2.0

// Package rtp implements the wire format of RTP streams, for senders and receivers alike.
//
// A packetizer turns a frame into a train of packets, once: by RFC 4175 for raw video, RFC 2435 for JPEG, RFC 6184 for
// H.264, and in a private format for results. The headers are in memory of the train, or, if the frame is packet-ready,
// in its gaps; the payloads are in the frame's slot or, if they are encoded, in memory of the train too. Packetizing
// raw video copies no pixels and allocates nothing. The package also implements RTCP (RFC 3550 §6) with the checksum
// packet, the header extension abs-capture-time (RFC 8285), and writing and parsing of session descriptions (SDP: RFC
// 8866, RFC 4570, RFC 6064, RFC 7273). docs/rtp.md describes all formats byte for byte.
package rtp
