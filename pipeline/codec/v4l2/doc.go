// SPDX-License-Identifier: Apache-2.0

// Package v4l2 encodes H.264 in hardware, with a V4L2 stateful memory-to-memory encoder as described in the kernel's
// documentation (userspace-api/media/v4l/dev-encoder.rst). It uses the kernel's device directly, or NVIDIA's devices
// through libnvv4l2, and libnvbufsurface, which makes pictures visible to them.
//
// Each picture is encoded before the next one is accepted, so its unit leaves without delay. Pictures are copied into
// the device's memory, and are encoded whole: a buffer of the device's OUTPUT queue holds a frame, never a part of one.
// NVIDIA's devices could return a picture slice by slice (V4L2_CID_MPEG_VIDEOENC_ENABLE_SLICE_LEVEL_ENCODE), which is not
// used.
//
// The queues, formats, the drain and errors are tested with the kernel's vicodec, which encodes FWHT; what is specific
// to H.264 is tested with a simulated device, and what NVIDIA's devices need with a stand-in for its libraries. The
// package has not run on the encoder of any board yet.
package v4l2
