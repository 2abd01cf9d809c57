// SPDX-License-Identifier: Apache-2.0

// Package udp has what sending and receiving RTP have in common of the kernel's interface to UDP (udp(7)): the
// structs of sendmmsg(2) and recvmmsg(2) in memory outside the Go heap, addresses, and socket buffers.
package udp
