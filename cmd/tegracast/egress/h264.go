// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"io"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/codec/v4l2"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// An H264Encoder encodes until it is closed.
type H264Encoder interface {
	rtp.H264Encoder
	io.Closer
}

// NewH264 opens an encoder for pictures of format f at so many bits a second: that of a device file, or openh264.
func NewH264(device string, f pipeline.Format, bitrate int) (H264Encoder, error) {
	if device != "" {
		return v4l2.New(device, f, bitrate)
	}
	return codec.NewH264(f, bitrate)
}
