// SPDX-License-Identifier: Apache-2.0

// Package mcap writes and reads MCAP files (https://mcap.dev/spec, version 0), the container of robotics. It lays out records in
// memory and leaves reading and writing to its callers, so that large messages are written from where they are: a frame is one
// uncompressed chunk that begins with a page of heads, behind which the frame's own pages follow.
package mcap
