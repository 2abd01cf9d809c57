// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// imageSchema is sensor_msgs/msg/Image with what it is made of, as an MCAP schema of encoding ros2msg has it.
const imageSchema = `std_msgs/Header header
uint32 height
uint32 width
string encoding
uint8 is_bigendian
uint32 step
uint8[] data
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
`

// packedSchema has the fields of sensor_msgs/msg/Image, which has no encoding for packed samples.
const packedSchema = `# A sensor's samples of 10 or 12 bits, as MIPI CSI-2 packs them: RAW10 (section 11.4.4) or RAW12 (section 11.4.5).
# The fields are those of sensor_msgs/msg/Image. encoding is V4L2's name of the format, such as pRAA.
` + imageSchema

// schemaOf is the schema of frames of a format.
func schemaOf(p pipeline.PixelFormat) mcap.Schema {
	if s, ok := p.Samples(); ok && s.Packed {
		return mcap.Schema{ID: 1, Name: packedName, Encoding: "ros2msg", Data: []byte(packedSchema)}
	}
	return mcap.Schema{ID: 1, Name: imageName, Encoding: "ros2msg", Data: []byte(imageSchema)}
}

// Encoding is the name of a format's pixels in sensor_msgs/Image: ROS' own where it has one (sensor_msgs/image_encodings.hpp),
// else V4L2's. Samples of more than 8 bits lie in words of 16, of which the upper bits are zero.
func Encoding(p pipeline.PixelFormat) string {
	switch p {
	case pipeline.UYVY:
		return "uyvy"
	case pipeline.RGB24:
		return "rgb8"
	}
	s, ok := p.Samples()
	if !ok || s.Packed {
		return p.String()
	}
	mosaic := [...]string{"bayer_rggb", "bayer_grbg", "bayer_gbrg", "bayer_bggr", "mono"}[s.Mosaic]
	if s.Bits == 8 {
		return mosaic + "8"
	}
	return mosaic + "16"
}

// appendImage appends a sensor_msgs/Image in CDR but for its pixels, of which size bytes follow.
func appendImage(b []byte, f pipeline.Format, at time.Time, frameID string, size int) []byte {
	le, from := binary.LittleEndian, len(b)+4 // alignment counts from behind the encapsulation's head
	align := func() {
		for (len(b)-from)%4 != 0 {
			b = append(b, 0)
		}
	}
	text := func(s string) {
		align()
		b = append(append(le.AppendUint32(b, uint32(len(s)+1)), s...), 0)
	}
	b = append(b, 0, 1, 0, 0) // CDR_LE
	b = le.AppendUint32(b, uint32(at.Unix()))
	b = le.AppendUint32(b, uint32(at.Nanosecond()))
	text(frameID)
	align()
	b = le.AppendUint32(b, uint32(f.Height))
	b = le.AppendUint32(b, uint32(f.Width))
	text(Encoding(f.Pixel))
	b = append(b, 0) // is_bigendian
	align()
	b = le.AppendUint32(b, uint32(f.Stride))
	return le.AppendUint32(b, uint32(size))
}

// Image is what a message of sensor_msgs/Image says besides its pixels.
type Image struct {
	At       time.Time `json:"at"`
	FrameID  string    `json:"frame_id"` // of the source
	Height   int       `json:"height"`
	Width    int       `json:"width"`
	Encoding string    `json:"encoding"`
	Step     int       `json:"step_bytes"` // from line to line
	Pixels   int       `json:"-"`          // offset in the message
	Size     int       `json:"size_bytes"` // of pixels
}

var errImage = errors.New("record: the message is no sensor_msgs/Image in CDR of little-endian")

// ParseImage reads the beginning of a message of size bytes. b has all of it but, maybe, pixels.
func ParseImage(b []byte, size int) (Image, error) {
	le, at, bad := binary.LittleEndian, 4, len(b) < 4 || b[1] != 1
	word := func() int {
		at = 4 + (at-4+3)&^3
		if bad = bad || at+4 > len(b); bad {
			return 0
		}
		n := le.Uint32(b[at:])
		at += 4
		return int(n)
	}
	text := func() string {
		n := word()
		if bad = bad || n < 1 || n > len(b)-at; bad {
			return ""
		}
		s := string(b[at : at+n-1])
		at += n
		return s
	}
	sec, nano := word(), word()
	i := Image{At: time.Unix(int64(int32(sec)), int64(nano)), FrameID: text()}
	i.Height, i.Width = word(), word()
	i.Encoding = text()
	at++
	i.Step, i.Size = word(), word()
	if i.Pixels = at; bad || i.Size != size-at {
		return Image{}, fmt.Errorf("%w: %d bytes", errImage, size)
	}
	return i, nil
}
