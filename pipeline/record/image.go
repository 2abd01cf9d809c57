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

// imageSchema is sensor_msgs/msg/Image with the types it uses, as an MCAP schema of encoding ros2msg.
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

// packedSchema is the schema of packed frames. It has the fields of sensor_msgs/msg/Image, which itself has no encoding
// for packed samples.
const packedSchema = `# A sensor's samples of 10 or 12 bits, as MIPI CSI-2 packs them: RAW10 (section 11.4.4) or RAW12 (section 11.4.5).
# The fields are those of sensor_msgs/msg/Image. encoding is V4L2's name of the format, such as pRAA.
` + imageSchema

// schemaOf returns the schema of frames of a format.
func schemaOf(p pipeline.PixelFormat) mcap.Schema {
	if s, ok := p.Samples(); ok && s.Packed {
		return mcap.Schema{ID: 1, Name: packedName, Encoding: "ros2msg", Data: []byte(packedSchema)}
	}
	return mcap.Schema{ID: 1, Name: imageName, Encoding: "ros2msg", Data: []byte(imageSchema)}
}

// Encoding returns the name of a pixel format in sensor_msgs/Image: that of ROS if it has one
// (sensor_msgs/image_encodings.hpp), otherwise that of V4L2. Unpacked samples of more than 8 bits are in 16-bit words
// whose unused upper bits are zero.
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
	mosaic := mosaics()[s.Mosaic]
	if s.Bits == 8 {
		return mosaic + "8"
	}
	return mosaic + "16"
}

// mosaics returns the names of the mosaics in sensor_msgs/Image without the number of bits. Its indexes are values of
// pipeline.Mosaic.
func mosaics() []string {
	return []string{"bayer_rggb", "bayer_grbg", "bayer_gbrg", "bayer_bggr", "mono"}
}

// appendImage appends a sensor_msgs/Image in CDR up to its pixels, of which size bytes follow.
func appendImage(b []byte, f pipeline.Format, at time.Time, frameID string, size int) []byte {
	le, from := binary.LittleEndian, len(b)+4 // alignment is relative to the end of the encapsulation header
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

// Image describes an image message: its fields other than the pixels, and where the pixels are.
type Image struct {
	At       time.Time `json:"at"`         // time of the image
	FrameID  string    `json:"frame_id"`   // name of the image's source
	Height   int       `json:"height"`     // in lines
	Width    int       `json:"width"`      // in pixels
	Encoding string    `json:"encoding"`   // pixel format, by ROS's name or, if it has none, V4L2's
	Step     int       `json:"step_bytes"` // bytes from line to line
	Pixels   int       `json:"-"`          // offset of the pixels in the message, in bytes
	Size     int       `json:"size_bytes"` // bytes of all pixels

	BigEndian bool `json:"-"` // samples of 16 bits are big-endian
	Tag       int  `json:"-"` // in protobuf: offset of the field of the pixels; otherwise 0
	Behind    int  `json:"-"` // in protobuf: bytes of the fields behind the pixels; otherwise 0
}

// maxImage is the maximum size of an image message in bytes.
const maxImage = mcap.MaxMessage

var errImage = errors.New("record: the message is not an image of its schema")

// ParseImage parses the fields of a sensor_msgs/Image of size bytes in CDR. b must contain all of the message except,
// possibly, its pixels.
func ParseImage(b []byte, size int) (Image, error) { return parseROS(b, size, false, false) }

// parseROS parses the fields of a sensor_msgs/Image or sensor_msgs/CompressedImage of size bytes, in the serialisation
// of ROS 1 or in CDR. b must contain all of the message except, possibly, its pixels.
func parseROS(b []byte, size int, ros1, compressed bool) (Image, error) {
	d := &rosDecoder{b: b, order: binary.LittleEndian, ros1: ros1}
	if ros1 {
		_ = d.word() // the header's sequence number
	} else if d.at, d.bad = 4, len(b) < 4 || b[1] > 1; !d.bad && b[1] == 0 { // CDR_BE
		d.order = binary.BigEndian
	}
	sec, nano := d.word(), d.word()
	i := Image{At: time.Unix(int64(int32(sec)), int64(nano)), FrameID: d.text()}
	if compressed {
		i.Encoding = d.text()
	} else {
		i.Height, i.Width = d.word(), d.word()
		i.Encoding = d.text()
		i.BigEndian = d.octet() != 0
		i.Step = d.word()
	}
	i.Size = d.word()
	padding := size - d.at - i.Size // CDR may be padded to four bytes
	if i.Pixels = d.at; d.bad || padding < 0 || padding > 3 || padding > 0 && d.ros1 {
		return Image{}, fmt.Errorf("%w: %d bytes", errImage, size)
	}
	return i, nil
}

// A rosDecoder reads fields from b, in the serialisation of ROS 1 or in CDR. After the first missing field all fields
// are zero, and bad is true.
type rosDecoder struct {
	b     []byte
	order binary.ByteOrder
	ros1  bool
	at    int
	bad   bool
}

func (d *rosDecoder) word() int {
	if !d.ros1 { // alignment is relative to the end of the encapsulation header, of 4 bytes
		d.at = (d.at + 3) &^ 3
	}
	if d.bad = d.bad || d.at+4 > len(d.b); d.bad {
		return 0
	}
	n := d.order.Uint32(d.b[d.at:])
	d.at += 4
	return int(n)
}

func (d *rosDecoder) octet() byte {
	if d.bad = d.bad || d.at >= len(d.b); d.bad {
		return 0
	}
	d.at++
	return d.b[d.at-1]
}

// text reads a string. In CDR it ends with a zero byte, which its length includes.
func (d *rosDecoder) text() string {
	n, zero := d.word(), 1
	if d.ros1 {
		zero = 0
	}
	if d.bad = d.bad || n < zero || n > len(d.b)-d.at; d.bad {
		return ""
	}
	d.at += n
	return string(d.b[d.at-n : d.at-zero])
}
