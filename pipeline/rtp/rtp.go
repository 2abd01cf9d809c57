// Package rtp sends frames as RTP streams and receives them to check.
//
// A packetizer turns a frame into a train of packets, once: RFC 4175 for UYVY, RFC 2435 for JPEG. A transmitter sends
// the train to N destinations, which share SSRC, sequence numbers and timestamps; it paces the packets over the frame
// period. Headers lie in memory of the train, payloads in the frame's slot; nothing is copied before the kernel, and
// nothing is allocated per frame. RTCP, SDP and the checksum packet are described in docs/rtp.md.
package rtp
