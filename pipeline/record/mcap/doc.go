// SPDX-License-Identifier: Apache-2.0

// Package mcap writes and reads MCAP files (https://mcap.dev/spec, version 0), a container format used in robotics. It
// lays out records in memory and leaves reading and writing to its callers, so that large messages can be written
// without copying: a frame is one uncompressed chunk that begins with a page of headers, followed by the frame's own
// pages.
package mcap
