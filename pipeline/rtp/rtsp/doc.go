// SPDX-License-Identifier: Apache-2.0

// Package rtsp lets readers receive RTP streams by RTSP (RFC 2326; docs/watch.md), and publishes streams to servers. It
// uses gortsplib for the sessions. The packets are sent by pipeline/rtp/send, which makes one train per frame; a reader
// is one more destination there.
package rtsp
