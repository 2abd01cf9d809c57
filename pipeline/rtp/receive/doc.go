// SPDX-License-Identifier: Apache-2.0

// Package receive receives RTP streams (RFC 3550) of raw video (RFC 4175), JPEG (RFC 2435) and H.264 (RFC 6184), and
// checks them.
//
// A Receiver puts frames together from packets in any order, counts losses, duplicates and jitter according to RFC 3550
// Appendix A, compares each frame with the checksum that the sender sends by RTCP, and answers with receiver reports
// (RFC 3550 §6.4.2). It joins groups for a single source if the session description names one (RFC 4570).
package receive
