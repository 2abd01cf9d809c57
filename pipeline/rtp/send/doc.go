// SPDX-License-Identifier: Apache-2.0

// Package send sends the frames of an output as an RTP stream (RFC 3550).
//
// A Sink packetizes each frame once. Its transmitter sends the train to any number of destinations, which share SSRC,
// sequence numbers and timestamps, and paces the packets over the frame period. Packets reach the kernel by the best
// way that a destination's socket turns out to take: MSG_ZEROCOPY, UDP_SEGMENT, sendmmsg or sendmsg. Sender reports
// and checksums go out by RTCP, and the receivers' reports are kept (RFC 3550 §6.4). How full a receiver's buffer
// would be is computed after SMPTE ST 2110-21 §6.6.
package send
