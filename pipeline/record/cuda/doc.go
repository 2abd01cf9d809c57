// SPDX-License-Identifier: Apache-2.0

// Package cuda packs the frames of a recording on an NVIDIA GPU, bit for bit as pipeline.Samples.Pack does.
package cuda
