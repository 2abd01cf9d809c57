// SPDX-License-Identifier: Apache-2.0

package preprocess

import (
	"image"
	"slices"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

const (
	maxSide  = 1 << 14 // of a tensor, in pixels: coordinates of the kernel have 32 bits
	maxBytes = 1 << 30 // of a tensor
	maxHalf  = 65504   // largest float16
)

// A plan holds the numbers that CPU and GPU have in common.
type plan struct {
	config        Config
	crop, picture image.Rectangle // in the frame, and in the tensor
	columns, rows []position      // of the picture's pixels in the crop
	colours       colours
	fill          [3]float32
	bytes         int // of the tensor
}

func newPlan(c Config) (p plan, err error) {
	if err := c.check(); err != nil {
		return p, err
	}
	bytes, err := c.info().Bytes(maxBytes)
	if err != nil {
		return p, refuse("tensor %w: make it smaller", err)
	}
	p = plan{config: c, crop: c.Crop, bytes: int(bytes)}
	if c.Crop.Empty() {
		p.crop = image.Rect(0, 0, c.Format.Width, c.Format.Height)
	}
	p.picture = picture(p.crop.Size(), image.Pt(c.Width, c.Height), c.Letterbox)
	p.columns, p.rows = positions(p.crop.Dx(), p.picture.Dx()), positions(p.crop.Dy(), p.picture.Dy())
	if p.colours, p.fill, err = newColours(&c); err != nil {
		return plan{}, err
	}
	return p, nil
}

func (c *Config) check() error {
	f := c.Format
	frame := image.Rect(0, 0, f.Width, f.Height)
	switch {
	case !slices.Contains(formats, f.Pixel):
		return refuse("frames %s: not supported: make GREY, RGB3, UYVY, NV12 or YU12 of them", f)
	case f.Validate() != nil:
		return refuse("frames: %w", f.Validate())
	case f.PacketPitch != 0:
		return refuse("frames %s are packet-ready, with gaps between their pixels: a plain format is needed", f)
	case c.ycc() && f.Color == pipeline.ColorNone:
		return refuse("frames %s have no colorimetry: state it", f)
	case !c.Crop.Empty() && !c.Crop.In(frame):
		return refuse("crop %v is not inside the frame %v: make it smaller", c.Crop, frame)
	case c.Width < 1 || c.Height < 1 || c.Width > maxSide || c.Height > maxSide:
		return refuse("tensor of %dx%d pixels: width and height must be from 1 to %d", c.Width, c.Height, maxSide)
	case c.Channels != 1 && c.Channels != 3:
		return refuse("tensor of %d channels: 1 (luma) or 3 (colours) are possible", c.Channels)
	case c.Type != tensor.Float32 && c.Type != tensor.Float16 && c.Type != tensor.Uint8:
		return refuse("tensor of %s: float32, float16 or uint8 are possible", c.Type)
	case !(c.Fill >= 0 && c.Fill <= 255):
		return refuse("fill %v: it must be from 0 to 255", c.Fill)
	}
	return nil
}

// picture returns where the picture is in a tensor of the given size.
func picture(crop, size image.Point, letterbox bool) image.Rectangle {
	scaled := size
	switch nearest := func(side, by, to int) int { return max(1, (2*side*by+to)/(2*to)) }; {
	case !letterbox:
	case size.X*crop.Y <= size.Y*crop.X:
		scaled.Y = nearest(crop.Y, size.X, crop.X)
	default:
		scaled.X = nearest(crop.X, size.Y, crop.Y)
	}
	corner := size.Sub(scaled).Div(2)
	return image.Rectangle{Min: corner, Max: corner.Add(scaled)}
}
