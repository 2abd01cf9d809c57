// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// ErrDestination is wrapped by errors of destinations, which name the destination and the reason.
var ErrDestination = errors.New("rtp: destination cannot be used")

// Pacing determines how the packets of a frame are spread over time. Config.Burst, if it is not 0, replaces the sizes
// of bursts given here.
type Pacing uint8

const (
	PaceFrame  Pacing = iota // over nine tenths of the frame period, but at most 0.9 s, in bursts of at most 16 packets; encoded pictures over less (burstTime)
	PaceWide                 // like PaceFrame, in bursts of at most 8
	PaceNarrow               // like PaceFrame, in bursts of at most 4
	PaceBurst                // as fast as the socket accepts them, in messages of at most 64 packets and 64 KB
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

// Config configures an RTP output. Zero values mean defaults.
type Config struct {
	rtp.Stream
	Destinations []string     // "host:port", "[v6]:port"; the port must be even; RTCP uses the next one (RFC 3550 §11)
	Interface    string       // outgoing interface of multicast packets, such as "eth0"; empty: determined by the route
	TTL          int          // of multicast and unicast packets; 0: 1 for multicast, the system's default for unicast
	DSCP         int          // RFC 2474, 0 to 63
	Pacing       Pacing       // how packets are spread over the frame period
	MostBits     int          // initial and maximum bits per second of H264; receivers' reports reduce it; 0: fixed bit rate
	LeastBits    int          // minimum bit rate of H264 in bits per second
	Slices       bool         // send the lines of filling frames (pipeline.Frame.Fill) as they arrive; only for raw video
	Burst        int          // maximum number of packets sent to a destination without a pause, or in a message without pacing; 0: according to Pacing
	Threads      *Threads     // threads shared with other streams; nil: threads of its own
	Way          Way          // how packets are handed to the kernel; ways other than Automatic are for comparisons
	Logger       *slog.Logger // nil: slog.Default
}

const (
	defaultBurst = 16
	maxBurst     = 1024 // packets
)

func (c Config) withDefaults() Config {
	c.Stream = c.Stream.WithDefaults()
	if c.Payload == rtp.Results { // only one or two packets
		c.Pacing = PaceBurst
	}
	if c.Burst == 0 {
		c.Burst = defaultBurst
		switch c.Pacing {
		case PaceWide:
			c.Burst = 8
		case PaceNarrow:
			c.Burst = 4
		case PaceBurst: // the fewer messages the less work
			c.Burst = maxSegments
		}
	}
	if c.Threads == nil {
		c.Threads = NewThreads(runtime.GOMAXPROCS(0))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate returns nil, or an error that wraps rtp.ErrConfig and states the field, its value and the violated rule.
func (c Config) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", rtp.ErrConfig, fmt.Sprintf(format, a...))
	}
	if err := c.Stream.Validate(); err != nil {
		return err
	}
	c = c.withDefaults()
	switch {
	case c.Pacing > PaceBurst:
		return bad("pacing %d: there is none", uint8(c.Pacing))
	case c.TTL < 0 || c.TTL > 255:
		return bad("ttl %d: must be from 0 to 255", c.TTL)
	case c.DSCP < 0 || c.DSCP > 63:
		return bad("dscp %d: must be from 0 to 63 (46 is expedited forwarding)", c.DSCP)
	case c.Way > Single:
		return bad("way %d: there is none", uint8(c.Way))
	case c.Burst < 1 || c.Burst > maxBurst:
		return bad("burst %d: must be from 1 to %d packets", c.Burst, maxBurst)
	}
	for i, d := range c.Destinations {
		if err := CheckDestination(d); err != nil {
			return bad("destination %d: %v", i+1, err)
		}
	}
	return nil
}

// CheckFormat returns nil, or an error that wraps rtp.ErrFormat and explains why frames of format f cannot be sent.
func (c Config) CheckFormat(f pipeline.Format) error {
	if err := c.Stream.CheckFormat(f); err != nil {
		return err
	}
	if c.Payload != rtp.Results && c.Pacing != PaceBurst && f.Rate.Num == 0 {
		return fmt.Errorf("%w: %s %dx%d as %s: pacing over the frame period needs a frame rate: give the format one, or set pacing to burst",
			rtp.ErrFormat, f.Pixel, f.Width, f.Height, c.Payload)
	}
	return nil
}

// Holds returns the number of frames of format f that an output holds, not counting those in its queue: the next frame
// is packetized while one is sent, and the kernel may still be sending the previous one from packet-ready memory. For
// results it is one.
func (c Config) Holds(f pipeline.Format) int {
	switch {
	case c.Payload == rtp.Results:
		return 1
	case f.PacketPitch > 0:
		return 3
	}
	return 2
}

// CheckDestination returns an error unless dest is "host:port". It does not resolve the host. The port must be even and
// not 0, because RTCP uses the next one.
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
