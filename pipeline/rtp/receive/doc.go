// SPDX-License-Identifier: Apache-2.0

// Package receive receives RTP streams (RFC 3550) of raw video (RFC 4175) and JPEG (RFC 2435) and checks them.
//
// A Receiver puts frames together from packets in any order, counts losses, duplicates and jitter after RFC 3550
// Appendix A, compares each frame with the checksum that the sender gives by RTCP, and answers with receiver reports
// (RFC 3550 §6.4.2). Groups are joined for one source where the description says so (RFC 4570).
package receive
