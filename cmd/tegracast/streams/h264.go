// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/codec/v4l2"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// NewH264 opens an encoder for pictures of format f at a bit rate in bits per second: that of the device file device,
// or openh264 if device is empty.
func NewH264(device string, f pipeline.Format, bitrate int) (rtp.H264Encoder, error) {
	if device != "" {
		return v4l2.New(device, f, bitrate)
	}
	return codec.NewH264(f, bitrate)
}
