// SPDX-License-Identifier: Apache-2.0

// Package send sends the frames of an output as an RTP stream (RFC 3550).
//
// A Sink packetizes each frame once. Its transmitter sends the train to any number of destinations, which share SSRC,
// sequence numbers and timestamps, and paces the packets over the frame period. For each destination, packets are
// handed to the kernel in the best way that the socket supports: MSG_ZEROCOPY, UDP_SEGMENT, sendmmsg or sendmsg. Sender
// reports and checksums are sent by RTCP, and the receivers' reports are kept (RFC 3550 §6.4). The level of a
// receiver's buffer is computed according to SMPTE ST 2110-21 §6.6.
package send
