// SPDX-License-Identifier: Apache-2.0

// Package v4l2 encodes H.264 by hardware: by a memory-to-memory stateful encoder of V4L2, as the kernel's documentation has it
// (userspace-api/media/v4l/dev-encoder.rst), through the kernel's device or through NVIDIA's libnvv4l2.
//
// A picture is encoded before the next one is taken, so its unit leaves at once. It is copied into the device's memory.
//
// The queues, formats, the drain and errors are tested with the kernel's vicodec, which encodes FWHT, and what belongs to H.264 with a
// double of a device. No board's encoder has been seen yet.
package v4l2
