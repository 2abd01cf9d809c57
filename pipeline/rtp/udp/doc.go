// SPDX-License-Identifier: Apache-2.0

// Package udp contains the parts of the kernel's UDP interface (udp(7)) that are needed both for sending and for
// receiving RTP: the structs of sendmmsg(2) and recvmmsg(2) in memory outside the Go heap, addresses, and socket
// buffers.
package udp
