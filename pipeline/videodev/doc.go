// SPDX-License-Identifier: Apache-2.0

// Package videodev is the kernel's interface of video devices (Video4Linux2) and of the graphs in which they stand (the
// media controller): structures, numbers of requests, open device files, and what devices say about themselves. It knows
// neither frames nor cameras. References such as "vidioc-qbuf" are pages of the kernel's documentation,
// userspace-api/media.
//
// What a device returns is checked before it is used: counts, sizes and names may be anything.
package videodev
