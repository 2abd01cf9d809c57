// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/pipeline"
)

// Errors that callers can distinguish. They are returned wrapped, with a text that says what is wrong.
var (
	ErrConfig  = errors.New("rtp: impossible configuration")
	ErrFormat  = errors.New("rtp: format cannot be sent")
	ErrSDP     = errors.New("sdp")
	ErrJPEG    = errors.New("rtp: JPEG cannot be sent")
	ErrH264    = errors.New("rtp: H.264 cannot be sent")
	ErrResults = errors.New("rtp: results cannot be sent")
)

// Payload is an RTP payload format.
type Payload uint8

const (
	Raw     Payload = iota // uncompressed video, RFC 4175
	JPEG                   // RFC 2435
	Results                // results of stages, as JSON (docs/results-output.md)
	H264                   // RFC 6184
)

var payloads = [...]string{"raw", "jpeg", "results", "h264"}

func (p Payload) String() string { return payloads[p] }

// MarshalText implements encoding.TextMarshaler.
func (p Payload) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Payload) UnmarshalText(b []byte) error {
	i := slices.Index(payloads[:], string(b))
	if i < 0 {
		return fmt.Errorf("payload %q: must be one of %s", b, strings.Join(payloads[:], ", "))
	}
	*p = Payload(i)
	return nil
}

// Payload types. 26 is the static one of JPEG (RFC 3551 §6), 96 the first dynamic one.
const (
	typeRaw     = 96
	typeJPEG    = 26
	typeResults = 97
	typeH264    = 98
)

// Type returns the RTP payload type.
func (p Payload) Type() uint8 {
	return [...]uint8{typeRaw, typeJPEG, typeResults, typeH264}[p]
}

// Start contains the SSRC and the initial values of an RTP stream. By RFC 3550 §5.1 all three should be random.
type Start struct {
	SSRC      uint32
	Sequence  uint32 // extended sequence number of the first packet
	Timestamp uint32 // added to the 90 kHz clock
}

// NewStart returns a random Start with the given timestamp offset. Streams of one source use the same offset, so that
// receivers can recognise the same frame in several streams.
func NewStart(timestamp uint32) *Start {
	return &Start{random(), random(), timestamp}
}

// RandomStart returns a random Start, whose timestamp offset is random too.
func RandomStart() *Start { return NewStart(random()) }

func random() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails, according to crypto/rand
	return binary.BigEndian.Uint32(b[:])
}

// Stream describes the contents of one RTP stream. Zero values mean defaults.
type Stream struct {
	Payload Payload
	MTU     int // maximum size of an IP packet on the path, in bytes; 0: 1500
	// Clock names the clock that disciplines the machine's or, with Reference, the camera's, for the SDP:
	// "ptp=IEEE1588-2008:GRANDMASTER:DOMAIN" (RFC 7273 §4.3); "": none.
	Clock       string
	CaptureTime bool        // send abs-capture-time in every RTP header, 16 bytes each
	Checksum    bool        // send an RTCP APP packet with each frame's CRC-32C (docs/rtp.md)
	Quality     int         // JPEG quality, 1 to 100; 0: 90
	Encoder     JPEGEncoder // encoder for payload JPEG; nil: image/jpeg with Quality
	H264        H264Encoder // encoder for payload H264; there is no default
	Name        string      // session name in the SDP; empty: "tegracast"
	// Reference returns the state of the clock from which the frames have their times, or nil: this machine's. It may be
	// nil, too.
	Reference func() *pipeline.ClockReport
	Start     *Start // nil: random in NewPacketizer; in Describe, the stream has not started
}

// The default and the limits of Stream.MTU, in bytes.
const (
	DefaultMTU = 1500
	MinMTU     = 576
	MaxMTU     = 9000
)

// DefaultQuality is the default JPEG quality.
const DefaultQuality = 90

// WithDefaults returns s with the defaults of MTU, Quality and Name filled in. A nil Start stays nil, because for
// Describe it means that the stream has not started.
func (s Stream) WithDefaults() Stream {
	if s.MTU == 0 {
		s.MTU = DefaultMTU
	}
	if s.Quality == 0 {
		s.Quality = DefaultQuality
	}
	if s.Name == "" {
		s.Name = "tegracast"
	}
	return s
}

// Validate returns nil, or an error that wraps ErrConfig and states the field, its value and the violated rule.
func (s Stream) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, a...))
	}
	s = s.WithDefaults()
	switch {
	case s.Payload > H264:
		return bad("payload %d: there is none", uint8(s.Payload))
	case s.MTU < MinMTU || s.MTU > MaxMTU:
		return bad("mtu %d: must be from %d to %d", s.MTU, MinMTU, MaxMTU)
	case s.Clock != "" && !clockPattern.MatchString(s.Clock):
		return bad("clock %q: must be ptp=IEEE1588-2008:GRANDMASTER:DOMAIN as in ptp=IEEE1588-2008:00-11-22-FF-FE-33-44-55:0", s.Clock)
	case s.Quality < 1 || s.Quality > 100:
		return bad("quality %d: must be from 1 to 100", s.Quality)
	}
	return nil
}

// PacketReady returns f with the memory layout of this stream's packets; a producer that writes this layout saves the
// transmitter from gathering packets. ok is false if there is no such layout: the payload is not raw, the pixels cannot
// be sent raw, or the packets of a line cannot all have the same size unless they are much smaller than necessary.
func (s Stream) PacketReady(f pipeline.Format) (ready pipeline.Format, ok bool) {
	s = s.WithDefaults()
	if _, ok := rawOf(f.Pixel); s.Payload != Raw || !ok {
		return f, false
	}
	line, group, head := f.Pixel.LineBytes(f.Width), f.Pixel.Group().Bytes, s.HeaderSize()+rawPayloadHeader
	for packets, _ := cutLine(line, s.MTU-ipUDPHeader-head, group); packets <= line/group; packets++ {
		if size := line / packets; line%packets == 0 && size%group == 0 {
			f.Stride, f.HeaderGap, f.PacketPitch = line, head, head+size
			return f, 2*size > s.MTU-ipUDPHeader-head // refuses a layout whose packets are much smaller than necessary
		}
	}
	return f, false
}

// CheckFormat returns nil, or an error that wraps ErrFormat and explains why frames of format f cannot be sent.
func (s Stream) CheckFormat(f pipeline.Format) error {
	s = s.WithDefaults()
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s %dx%d as %s: %s", ErrFormat, f.Pixel, f.Width, f.Height, s.Payload, fmt.Sprintf(format, a...))
	}
	if err := f.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	_, raw := rawOf(f.Pixel)
	planar := s.Payload == JPEG || s.Payload == H264
	switch {
	case s.Payload == Results:
		return nil
	case s.Payload == Raw && (!raw || f.Pixel == 0):
		return bad("pixels must be one of %s: let a stage convert them", rawPixels())
	case planar && f.Pixel != pipeline.I420 && (f.Pixel != pipeline.MJPEG || s.Payload != JPEG):
		return bad("pixels must be %s: let a stage convert them", pipeline.I420)
	case s.Payload == JPEG && f.Color != pipeline.BT601Full:
		return bad("colours are %s, and those of JPEG are %s (JFIF): send them as %s or %s", f.Color, pipeline.BT601Full, H264, Raw)
	case f.Color == pipeline.ColorNone:
		return bad("colours are %s: let a stage give them", f.Color)
	case f.Memory != pipeline.MemoryHost:
		return bad("memory is %s, but packets are copied by the CPU: use host memory", f.Memory)
	case f.PacketPitch != 0 && (planar || f.HeaderGap != s.HeaderSize()+rawPayloadHeader || f.PacketPitch > s.MTU-ipUDPHeader):
		return bad("packet-ready memory has packets of %d bytes with %d of headers: Stream.PacketReady gives the right ones",
			f.PacketPitch, f.HeaderGap)
	case s.Payload == Raw && (f.Width > maxRaw || f.Height > maxRaw):
		return bad("RFC 4175 §6.1 allows at most %d pixels in width and height: make the picture smaller", maxRaw)
	case s.Payload == JPEG && (f.Width > maxJPEG || f.Height > maxJPEG):
		return bad("RFC 2435 §3.1.5 allows at most %d pixels in width and height: halve the picture or send it raw", maxJPEG)
	}
	return nil
}
