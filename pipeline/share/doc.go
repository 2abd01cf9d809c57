// SPDX-License-Identifier: Apache-2.0

// Package share passes the frames of an output to other processes of the machine without copying: they map the memory
// that contains the frames, and learn over a Unix socket where each frame is.
//
// A Sink is the output. A Stage also takes results back. A Client is a consumer in Go; the folders c and python contain
// clients in C and Python.
//
// # Protocol
//
// The socket is of type SOCK_SEQPACKET. Numbers are unsigned and little-endian, of 32 bits unless another size is given;
// times are signed ns since 1970 of 8 bytes, 0 when unknown. The lists are by offset in the message.
//
// The consumer sends subscribe first, and after that ready. subscribe has 20 bytes, or 24 in version 2, which has flags:
//   - 0: 1
//   - 4: the characters TGSH
//   - 8: version: 1, or 2 with flags
//   - 12: policy: 0 latest, 1 block
//   - 16: every n-th frame, 1 to 1,048,576
//   - 20: in version 2 only: 1 it returns results, as a Stage demands, 2 it takes the numbers of groups
//
// ready has 16 bytes. Leases held plus frames requested must not exceed the number in welcome:
//   - 0: 2
//   - 4: how many more frames the consumer takes
//   - 8: a lease that it gives back, 8 bytes; 0: none
//
// answer, only after a subscription that returns results and at most once for a lease that the consumer holds, has 32 bytes and the results as JSON
// (docs/inference.md), at most 48 KiB:
//   - 0: 3
//   - 4: length of the results
//   - 8: lease, 8 bytes
//   - 16, 24: when the work on the frame began and ended, by the consumer's clock
//
// The program replies to subscribe with welcome or bye, sends a frame whenever the consumer is ready for one, and bye at the
// end. welcome has 48 bytes and the name of the output:
//   - 0: 17
//   - 4: version, 1
//   - 8: how many frames the consumer may hold
//   - 12, 16: frame rate, numerator and denominator; 0, 0: unknown
//   - 20: length of the name
//   - 24: format, 24 bytes: pixels (V4L2's four characters), width, height, stride in bytes, colorimetry (0 none, 1
//     BT.709 limited, 2 BT.601 full, 3 BT.709 full, 4 BT.601 limited), 0
//
// frame has 152 bytes, or 160 for a consumer that takes the numbers of groups, and the results of earlier stages as JSON
// (docs/results-output.md). The first frame in a slot comes with the descriptor of the slot's memfd (SCM_RIGHTS, exactly
// one): the consumer maps the whole file, and keeps the mapping, because the descriptor does not come again.
//   - 0: 18
//   - 4: slot, less than 1,024
//   - 8: lease, 8 bytes
//   - 16: sequence number, 8 bytes
//   - 24, 32: offset in the slot's memfd, and length, 8 bytes each
//   - 40: format, as above
//   - 64, 72: start and end of the exposure
//   - 80: their uncertainty in ns, 8 bytes
//   - 88, 96, 104, 112: end of DMA, end of the stage that made the frame, replayed, sent
//   - 120: flags: 1 padded by the FPGA, 2 no checksum covers it, 65536 the CRC is valid, 131072 the results were left out
//   - 124: CRC-32C of the bytes, by the FPGA for a camera's frames
//   - 128, 132: length of the results, at most 16 KiB; 0
//   - 136, 144: frames that this consumer wanted so far, and those that it was not ready for, 8 bytes each
//   - 152, only for a consumer that takes them: number of the frame's group, 8 bytes; 0: none
//
// bye has 8 bytes and the reason as text, at most 512 bytes:
//   - 0: 19
//   - 4: 0 the output ends, 1 invalid message, 2 busy, 3 refused, 4 no subscription in time
package share
