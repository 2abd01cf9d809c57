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

// ErrDestination is wrapped, with what, where and what to do, by the errors of destinations.
var ErrDestination = errors.New("rtp: destination cannot be used")

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

// Config describes one RTP output. Zero values mean the defaults.
type Config struct {
	rtp.Stream
	Destinations []string     // "host:port", "[v6]:port"; the port is even, RTCP goes to the next one (RFC 3550 §11)
	Interface    string       // by which multicast leaves, such as "eth0"; empty: as the route says
	TTL          int          // of multicast and unicast packets; 0: 1 for multicast, the system's for unicast
	DSCP         int          // RFC 2474, 0 to 63
	Pacing       Pacing       // over the frame period in trains of several lengths, or none
	MostBits     int          // a second, that H264 makes now; fewer when receivers report losses; 0: its bits stay
	LeastBits    int          // that it makes then
	Slices       bool         // frames that fill (pipeline.Frame.Fill) are sent as their lines arrive; of raw video only
	Burst        int          // most packets sent to a destination without a pause; 0: as Pacing says, without it 16
	Threads      *Threads     // which the stream shares with others; nil: it has a thread of its own
	Way          Way          // to compare them; an output uses Automatic
	Logger       *slog.Logger // nil: slog.Default
}

const (
	defaultBurst = 16
	maxBurst     = 1024 // packets; more is no burst
)

func (c Config) withDefaults() Config {
	c.Stream = c.Stream.WithDefaults()
	if c.Payload == rtp.Results { // a packet or two
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
	if c.Threads == nil {
		c.Threads = NewThreads(runtime.GOMAXPROCS(0))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate returns an error that wraps rtp.ErrConfig and names the field, its value and the rule.
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

// CheckFormat returns an error that wraps rtp.ErrFormat when frames of format f cannot be sent, and says why.
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

// Holds is how many frames of format f an output holds besides those that wait: the next is packetized while one is
// sent, and from packet-ready memory the kernel may still be sending the one before.
func (c Config) Holds(f pipeline.Format) int {
	switch {
	case c.Payload == rtp.Results:
		return 1
	case f.PacketPitch > 0:
		return 3
	}
	return 2
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
