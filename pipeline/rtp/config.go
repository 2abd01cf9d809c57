package rtp

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/tegracast/tegracast/pipeline"
)

// Errors that callers tell apart. They come wrapped with what, where and what to do.
var (
	ErrConfig      = errors.New("rtp: impossible configuration")
	ErrFormat      = errors.New("rtp: format cannot be sent")
	ErrDestination = errors.New("rtp: destination cannot be used")
	ErrSDP         = errors.New("sdp")
	ErrJPEG        = errors.New("rtp: JPEG cannot be sent")
	ErrResults     = errors.New("rtp: results cannot be sent")
)

// Payload is the RTP payload format.
type Payload uint8

const (
	Raw     Payload = iota // uncompressed video, RFC 4175
	JPEG                   // RFC 2435
	Results                // what stages have found, as JSON (docs/results-output.md)
)

var payloads = [...]string{"raw", "jpeg", "results"}

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

// Payload types: 26 is JPEG's static one (RFC 3551 §6), 96 the first dynamic one.
const (
	typeRaw     = 96
	typeJPEG    = 26
	typeResults = 97
)

func (p Payload) payloadType() uint8 {
	return [...]uint8{typeRaw, typeJPEG, typeResults}[p]
}

// Pacing says how the packets of a frame are spread in time.
type Pacing uint8

const (
	PaceFrame  Pacing = iota // over nine tenths of the frame period, in bursts of at most 16 packets
	PaceWide                 // the same in bursts of at most 8
	PaceNarrow               // the same in bursts of at most 4
	PaceBurst                // as fast as the socket takes them
)

var pacings = [...]string{"frame", "wide", "narrow", "burst"}

func (p Pacing) String() string { return pacings[p] }

// MarshalText implements encoding.TextMarshaler.
func (p Pacing) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Pacing) UnmarshalText(b []byte) error {
	i := slices.Index(pacings[:], string(b))
	if i < 0 {
		return fmt.Errorf("pacing %q: must be one of %s", b, strings.Join(pacings[:], ", "))
	}
	*p = Pacing(i)
	return nil
}

// Start is where an RTP stream begins; RFC 3550 §5.1 wants all three random.
type Start struct {
	SSRC      uint32
	Sequence  uint32 // the extended sequence number of the first packet
	Timestamp uint32 // added to the 90 kHz clock
}

// NewStart is a random one. Streams of one source have one offset of their timestamps, so that frames of theirs can be
// told to be the same.
func NewStart(timestamp uint32) *Start {
	return &Start{random(), random(), timestamp}
}

func random() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails, crypto/rand says
	return binary.BigEndian.Uint32(b[:])
}

// Config describes one RTP output. Zero values mean the defaults.
type Config struct {
	Payload      Payload
	Destinations []string     // "host:port", "[v6]:port"; the port is even, RTCP goes to the next one (RFC 3550 §11)
	Interface    string       // by which multicast leaves, such as "eth0"; empty: as the route says
	TTL          int          // of multicast and unicast packets; 0: 1 for multicast, the system's for unicast
	DSCP         int          // RFC 2474, 0 to 63
	MTU          int          // of the path, IP packet in bytes; 0: 1500
	Pacing       Pacing       // over the frame period in trains of several lengths, or none
	Burst        int          // most packets sent to a destination without a pause; 0: as Pacing says, without it 16
	Clock        string       // that the machine's is disciplined by, for the SDP: "ptp=IEEE1588-2008:GRANDMASTER:DOMAIN" (RFC 7273 §4.3); "": its own
	CaptureTime  bool         // abs-capture-time in every RTP header, 16 bytes each
	Checksum     bool         // an RTCP APP packet with each frame's CRC-32C (docs/rtp.md)
	Quality      int          // of JPEG, 1 to 100; 0: 90
	Encoder      JPEGEncoder  // nil: image/jpeg at Quality
	Engine       Engine       // to compare them; an output uses Automatic
	Name         string       // of the session in the SDP; empty: "tegracast"
	Start        *Start       // nil: random
	Logger       *slog.Logger // nil: slog.Default
}

const (
	defaultMTU   = 1500
	minMTU       = 576
	maxMTU       = 9000
	defaultBurst = 16
	maxBurst     = 1024 // packets; more is no burst
)

// DefaultQuality is that of JPEG.
const DefaultQuality = 90

func (c Config) withDefaults() Config {
	if c.MTU == 0 {
		c.MTU = defaultMTU
	}
	if c.Payload == Results { // a packet or two
		c.Pacing = PaceBurst
	}
	if c.Burst == 0 {
		c.Burst = defaultBurst
		switch c.Pacing {
		case PaceWide:
			c.Burst = 8
		case PaceNarrow:
			c.Burst = 4
		}
	}
	if c.Quality == 0 {
		c.Quality = DefaultQuality
	}
	if c.Name == "" {
		c.Name = "tegracast"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate returns an error that wraps ErrConfig and names the field, its value and the rule.
func (c Config) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, a...))
	}
	c = c.withDefaults()
	switch {
	case c.Payload > Results:
		return bad("payload %d: there is none", uint8(c.Payload))
	case c.Pacing > PaceBurst:
		return bad("pacing %d: there is none", uint8(c.Pacing))
	case c.TTL < 0 || c.TTL > 255:
		return bad("ttl %d: must be from 0 to 255", c.TTL)
	case c.DSCP < 0 || c.DSCP > 63:
		return bad("dscp %d: must be from 0 to 63 (46 is expedited forwarding)", c.DSCP)
	case c.MTU < minMTU || c.MTU > maxMTU:
		return bad("mtu %d: must be from %d to %d", c.MTU, minMTU, maxMTU)
	case c.Clock != "" && !clockPattern.MatchString(c.Clock):
		return bad("clock %q: must be ptp=IEEE1588-2008:GRANDMASTER:DOMAIN as in ptp=IEEE1588-2008:00-11-22-FF-FE-33-44-55:0", c.Clock)
	case c.Engine > Single:
		return bad("engine %d: there is none", uint8(c.Engine))
	case c.Burst < 1 || c.Burst > maxBurst:
		return bad("burst %d: must be from 1 to %d packets", c.Burst, maxBurst)
	case c.Quality < 1 || c.Quality > 100:
		return bad("quality %d: must be from 1 to 100", c.Quality)
	}
	for i, d := range c.Destinations {
		if err := CheckDestination(d); err != nil {
			return bad("destination %d: %v", i+1, err)
		}
	}
	return nil
}

// Holds is how many frames of format f an output holds besides those that wait: JPEG encodes the next while one is
// sent, and from packet-ready memory the kernel may still be sending those before.
func (c Config) Holds(f pipeline.Format) int {
	switch {
	case c.Payload == JPEG:
		return 2
	case f.PacketPitch > 0:
		return 3
	}
	return 1
}

// CheckDestination checks "host:port" without resolving the host: RTP's port is even, RTCP takes the next one.
func CheckDestination(dest string) error {
	host, port, err := net.SplitHostPort(dest)
	if err != nil || host == "" {
		return fmt.Errorf("%q: must be host:port, such as 127.0.0.1:5004 or [ff15::1]:5004", dest)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q: port must be from 2 to 65534", dest)
	}
	if n%2 != 0 {
		return fmt.Errorf("%q: RTP's port must be even, RTCP takes the next one: use %d", dest, n-1)
	}
	return nil
}

// PacketReady returns f with the layout of this output's packets: a producer that writes it saves the transmitter the
// gathering. ok is false when there is none, since the packets of a line cannot all have one size.
func (c Config) PacketReady(f pipeline.Format) (ready pipeline.Format, ok bool) {
	c = c.withDefaults()
	if _, ok := rawOf(f.Pixel); c.Payload != Raw || !ok {
		return f, false
	}
	line, group, head := f.Pixel.LineBytes(f.Width), f.Pixel.Group().Bytes, c.rtpHeader()+rawPayloadHeader
	for packets, _ := cutLine(line, c.MTU-ipUDPHeader-head, group); packets <= line/group; packets++ {
		if size := line / packets; line%packets == 0 && size%group == 0 {
			f.Stride, f.HeaderGap, f.PacketPitch = line, head, head+size
			return f, 2*size > c.MTU-ipUDPHeader-head // not with packets much smaller than need be
		}
	}
	return f, false
}

// CheckFormat returns an error that wraps ErrFormat when frames of format f cannot be sent, and says why.
func (c Config) CheckFormat(f pipeline.Format) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s %dx%d as %s: %s", ErrFormat, f.Pixel, f.Width, f.Height, c.Payload, fmt.Sprintf(format, a...))
	}
	if err := f.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	_, raw := rawOf(f.Pixel)
	switch {
	case c.Payload == Results:
		return nil
	case c.Payload == Raw && (!raw || f.Pixel == 0):
		return bad("pixels must be one of %s: let a stage convert them", rawPixels())
	case c.Payload == JPEG && f.Pixel != pipeline.I420:
		return bad("pixels must be %s: let a stage convert them", pipeline.I420)
	case c.Payload == JPEG && f.Color != pipeline.BT601Full:
		return bad("colours are %s, must be %s", f.Color, pipeline.BT601Full)
	case f.Color == pipeline.ColorNone:
		return bad("colours are %s: let a stage give them", f.Color)
	case f.Memory != pipeline.MemoryHost:
		return bad("memory is %s, but packets are copied by the CPU: use host memory", f.Memory)
	case f.PacketPitch != 0 && (c.Payload == JPEG || f.HeaderGap != c.rtpHeader()+rawPayloadHeader || f.PacketPitch > c.MTU-ipUDPHeader):
		return bad("packet-ready memory has packets of %d bytes with %d of headers: Config.PacketReady gives the right ones",
			f.PacketPitch, f.HeaderGap)
	case c.Payload == JPEG && (f.Width > maxJPEG || f.Height > maxJPEG):
		return bad("RFC 2435 §3.1.5 allows at most %d pixels in width and height: halve the picture or send it raw", maxJPEG)
	case c.Pacing != PaceBurst && f.Rate.Num == 0:
		return bad("pacing over the frame period needs a frame rate: give the format one, or set pacing to burst")
	}
	return nil
}
