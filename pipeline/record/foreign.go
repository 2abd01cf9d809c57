// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// errUnplayable means that images are of a kind or a format that is not played. It does not mean damage.
var errUnplayable = errors.New("cannot be played")

// kindOf reports whether messages of a schema are images, and whether they are compressed.
func kindOf(schema string) (image, compressed bool) {
	switch schema {
	case imageName, packedName, "sensor_msgs/Image", rawImageName:
		return true, false
	case "sensor_msgs/CompressedImage", "sensor_msgs/msg/CompressedImage", compressedImageName, compressedVideoName:
		return true, true
	}
	return false, false
}

// A conversion changes foreign pixels, in place, into those of one of this project's formats. Applied a second time, it
// restores the original bytes.
type conversion uint8

const (
	asTheyAre   conversion = iota
	swapBytes              // of each 16 bits, for big-endian samples and YUYV
	swapRedBlue            // the first and the last of each 3 bytes
)

// convert applies the conversion to a frame's pixels. It does not change the padding of lines.
func (c conversion) convert(b []byte, f pipeline.Format) {
	if c == asTheyAre {
		return
	}
	for y := range f.Height {
		line := b[y*f.Stride:][:f.Pixel.LineBytes(f.Width)]
		if c == swapBytes {
			for i := 0; i+1 < len(line); i += 2 {
				line[i], line[i+1] = line[i+1], line[i]
			}
			continue
		}
		for i := 0; i+2 < len(line); i += 3 {
			line[i], line[i+2] = line[i+2], line[i]
		}
	}
}

// foreignPixels returns the pixel format of an encoding of ROS (sensor_msgs/image_encodings.hpp) or Foxglove
// (foxglove.RawImage), and the conversion to it. ok is false if there is none.
func foreignPixels(encoding string, bigEndian bool) (p pipeline.PixelFormat, c conversion, ok bool) {
	switch encoding {
	case "rgb8":
		return pipeline.RGB24, asTheyAre, true
	case "bgr8", "8UC3":
		return pipeline.RGB24, swapRedBlue, true
	case "uyvy", "yuv422":
		return pipeline.UYVY, asTheyAre, true
	case "yuyv", "yuv422_yuy2":
		return pipeline.UYVY, swapBytes, true
	case "8UC1":
		encoding = "mono8"
	case "16UC1":
		encoding = "mono16"
	}
	s := pipeline.Samples{Bits: 8}
	name, eight := strings.CutSuffix(encoding, "8")
	if !eight {
		if name, ok = strings.CutSuffix(encoding, "16"); !ok {
			return 0, asTheyAre, false
		}
		if s.Bits = 16; bigEndian {
			c = swapBytes
		}
	}
	i := slices.Index(mosaics(), name)
	if i < 0 {
		return 0, asTheyAre, false
	}
	s.Mosaic = pipeline.Mosaic(i)
	p, ok = s.Format()
	return p, c, ok
}

// formatOf returns the format of an image of a channel, and the conversion to it. The error wraps errUnplayable if the
// pixel format or the size is not supported, or ErrFormat if the image has another number of bytes than its format
// requires.
func formatOf(c mcap.Channel, i Image) (f pipeline.Format, how conversion, err error) {
	about := c.Metadata
	if p := about["pixels"]; len(p) == 4 {
		f = pipeline.Format{
			Pixel: pipeline.PixelFormat(p[0]) | pipeline.PixelFormat(p[1])<<8 | pipeline.PixelFormat(p[2])<<16 | pipeline.PixelFormat(p[3])<<24,
			Width: i.Width, Height: i.Height,
		}
		_ = f.Rate.UnmarshalText([]byte(about["rate"])) // otherwise the rate is variable
		for f.Color = pipeline.BT601Limited; f.Color > 0 && f.Color.String() != about["color"]; f.Color-- {
		}
	} else {
		pixel, h, known := foreignPixels(i.Encoding, i.BigEndian)
		if !known {
			return f, how, fmt.Errorf("images in %q of channel %s %w: convert them to one of mono8, mono16, rgb8, bgr8, uyvy, yuyv, bayer_…8 and bayer_…16",
				i.Encoding, c.Topic, errUnplayable)
		}
		f, _ = pipeline.NewFormat(pixel, i.Width, i.Height, pipeline.Rate{}) // validated below
		if how = h; pixel == pipeline.UYVY {
			f.Color = pipeline.BT601Limited // as ROS' own conversions take it
		}
	}
	f.Stride = i.Step
	if err := f.Validate(); err != nil {
		return f, how, fmt.Errorf("images of channel %s %w: %w", c.Topic, errUnplayable, err)
	}
	if f.Size() != i.Size {
		return f, how, fmt.Errorf("%w: channel %s: %s has %d bytes, the frame %d", ErrFormat, c.Topic, f, f.Size(), i.Size)
	}
	return f, how, nil
}

// playable returns the format and the fields of a message's image. The error is that of readImage or formatOf, or wraps
// errUnplayable if the image is compressed.
func playable(f *mcap.File, m mcap.MessageInfo) (format pipeline.Format, i Image, err error) {
	c := f.Channels[m.Channel]
	_, compressed := kindOf(f.Schemas[c.Schema].Name)
	if i, err = readImage(f, m); err != nil {
		return format, i, err
	}
	if compressed {
		return format, i, fmt.Errorf("compressed images (%s) of channel %s %w: decode them to sensor_msgs/msg/Image", i.Encoding, c.Topic, errUnplayable)
	}
	format, _, err = formatOf(c, i)
	return format, i, err
}
