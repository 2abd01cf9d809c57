// SPDX-License-Identifier: Apache-2.0

// Package cuda packs the frames of a recording on an NVIDIA GPU, with the same result as pipeline.Samples.Pack.
package cuda
