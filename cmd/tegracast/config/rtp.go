// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// RTP is an RTP stream.
type RTP struct {
	Payload      yamlfile.Word[rtp.Payload] `yaml:"payload" jsonschema_description:"raw: RFC 4175. jpeg: RFC 2435. h264: H.264 (RFC 6184), by openh264 or by encoder. results: what the stages found in the frames, as JSON (docs/results-output.md)."`
	Pixels       string                     `yaml:"pixels,omitempty" jsonschema:"enum=uyvy,enum=uyvp,enum=rgb24" jsonschema_description:"For payload raw: uyvy (default) is 4:2:2 of 8 bits, uyvp is 4:2:2 of 10 bits, rgb24 is RGB."`
	Destinations []string                   `yaml:"destinations,omitempty" jsonschema_description:"Each is host:port with an even port. RTCP goes to the next port. Without any the stream is read by RTSP, and h264 on the page, alone."`
	Publish      *Publish                   `yaml:"publish,omitempty" jsonschema_description:"A server that takes the stream, by RTSP or WebRTC."`
	Interface    string                     `yaml:"interface,omitempty" jsonschema_description:"Network interface through which multicast leaves."`
	TTL          int                        `yaml:"ttl,omitempty" jsonschema:"minimum=0,maximum=255" jsonschema_description:"Time to live of the packets: the number of routers that they may pass."`
	DSCP         int                        `yaml:"dscp,omitempty" jsonschema:"minimum=0,maximum=63" jsonschema_description:"Differentiated services code point of the packets (RFC 2474)."`
	MTU          yamlfile.Word[packetSize]  `yaml:"mtu,omitempty" jsonschema_description:"Largest IP packet, in bytes. auto (default): what the paths to all destinations take, at most 1500; it is looked at when the output opens and at a reload."`
	Pacing       yamlfile.Word[send.Pacing] `yaml:"pacing,omitempty" jsonschema_description:"frame (default): packets are spread over the frame period, in bursts of up to 16; those of encoded pictures follow each other within a millisecond. wide: in bursts of up to 8. narrow: in bursts of up to 4. burst: packets are not spread."`
	Clock        string                     `yaml:"clock,omitempty" jsonschema_description:"What disciplines the machine's clock, for the SDP, as ptp=IEEE1588-2008:GRANDMASTER:DOMAIN (default: the machine's own clock)."`
	CaptureTime  bool                       `yaml:"capture_time,omitempty" jsonschema_description:"Put the capture time of each frame into its packets, as the header extension abs-capture-time."`
	Checksum     bool                       `yaml:"checksum,omitempty" jsonschema_description:"Send the CRC-32C of each frame by RTCP, for tegracast probe."`
	Session      string                     `yaml:"session,omitempty" jsonschema_description:"For payload results: name of the output whose SDP describes this stream, too."`
	Quality      int                        `yaml:"quality,omitempty" jsonschema:"minimum=1,maximum=100" jsonschema_description:"For payload jpeg: quality of the pictures (default 90)."`
	Bitrate      int                        `yaml:"bitrate,omitempty" jsonschema:"minimum=10,maximum=240000" jsonschema_description:"For payload h264: kilobits a second (default: a tenth of a bit for each pixel)."`
	Encoder      string                     `yaml:"encoder,omitempty" jsonschema:"pattern=^/dev/." jsonschema_description:"For payload h264: the device file of an encoder of V4L2, for instance /dev/video11 (default: openh264, on the CPU). Not run on a board yet."`
	BitrateMin   int                        `yaml:"bitrate_min,omitempty" jsonschema:"minimum=10,maximum=240000" jsonschema_description:"For payload h264: the lowest rate, in kilobits a second, when receivers lose packets (default: a quarter of bitrate). The same as bitrate: the rate stays."`

	recorded bool

	path int // packet size in bytes that the paths to all destinations support; 0: not determined, or the usual size
}

// Recorded reports whether the encoded pictures are recorded. Such a stream needs no readers.
func (c *RTP) Recorded() bool { return c.recorded }

// Config returns the stream's configuration. name is the output's name.
func (c *RTP) Config(name string) send.Config {
	return send.Config{
		Stream: rtp.Stream{
			Payload: c.Payload.V, MTU: cmp.Or(int(c.MTU.V), c.path), Clock: c.Clock, CaptureTime: c.CaptureTime, Checksum: c.Checksum, Quality: c.Quality,
			Name: "tegracast " + name,
		},
		Destinations: c.Destinations, Interface: c.Interface, TTL: c.TTL, DSCP: c.DSCP, Pacing: c.Pacing.V,
	}
}

func (c *RTP) resolve(r *resolver, at yamlfile.Section, o *Output) (traits, error) {
	t := traits{
		OpenAt: at.Place(), formatAt: at.Key("payload").Place(), Holds: c.Config(o.Name).Holds(pipeline.Format{}),
		results: c.Payload.V == rtp.Results, check: c.check, packets: c.packets,
	}
	switch {
	case c.Payload.V == rtp.JPEG:
		t.pixels = pipeline.I420
	case c.Payload.V == rtp.H264:
		t.pixels, t.color = pipeline.I420, pipeline.BT709Limited
	case c.Pixels == "uyvp":
		t.pixels = pipeline.UYVP
	case c.Pixels == "rgb24":
		t.pixels = pipeline.RGB24
	}
	return t, c.verify(r, at, o.Name)
}

// verify refuses invalid values.
func (c *RTP) verify(r *resolver, at yamlfile.Section, name string) error {
	if err := c.checkSession(r, at); err != nil {
		return err
	}
	if err := c.checkDestinations(r, at); err != nil {
		return err
	}
	if c.Publish != nil {
		if err := c.Publish.Check(at.Key("publish"), c.Payload.V); err != nil {
			return err
		}
	}
	switch {
	case c.Payload.V != rtp.Raw && c.Pixels != "":
		return at.Key("pixels").Errorf("only payload raw has pixels: leave pixels out")
	case c.Payload.V != rtp.JPEG && c.Quality != 0:
		return at.Key("quality").Errorf("only payload jpeg has a quality: leave quality out")
	case c.Payload.V != rtp.H264 && c.Bitrate != 0:
		return at.Key("bitrate").Errorf("only payload h264 has a bit rate: leave bitrate out")
	case c.Payload.V != rtp.H264 && c.Encoder != "":
		return at.Key("encoder").Errorf("only payload h264 has an encoder: leave encoder out")
	case c.Payload.V != rtp.H264 && c.BitrateMin != 0:
		return at.Key("bitrate_min").Errorf("only payload h264 has a bit rate: leave bitrate_min out")
	case c.Bitrate != 0 && c.BitrateMin > c.Bitrate:
		return at.Key("bitrate_min").Errorf("%d is more than bitrate, which is %d", c.BitrateMin, c.Bitrate)
	case c.Interface != "" && c.unicast() && r.file.RTSP.Multicast == "":
		return at.Key("interface").Errorf("no destination is a multicast group: leave interface out, routes decide where other packets leave")
	}
	if err := c.Config(name).Validate(); err != nil {
		return at.Errorf("%s", plain(err, rtp.ErrConfig))
	}
	return nil
}

// unicast reports whether no destination is, or may become, a multicast group.
func (c *RTP) unicast() bool {
	return !slices.ContainsFunc(c.Destinations, func(dest string) bool {
		a, err := netip.ParseAddrPort(dest)
		return err != nil || a.Addr().Unmap().IsMulticast() // a name is resolved later
	})
}

// checkSession refuses a non-empty key session, unless the payload is results and the key names an RTP output of
// pictures, whose SDP then also describes the results.
func (c *RTP) checkSession(r *resolver, at yamlfile.Section) error {
	switch {
	case c.Session == "":
		return nil
	case c.Payload.V != rtp.Results:
		return at.Key("session").Errorf("only payload results has a session: leave session out")
	}
	for i := range r.file.Outputs {
		if x := &r.file.Outputs[i]; x.Name == c.Session && x.RTP != nil && x.RTP.Payload.V != rtp.Results {
			return nil
		}
	}
	return at.Key("session").Errorf("%q is not an output that sends pictures by RTP", c.Session)
}

// checkDestinations refuses bad destinations, the key session without destinations, and a stream without any way to its
// readers: destinations, publish, RTSP, or the page for H.264.
func (c *RTP) checkDestinations(r *resolver, at yamlfile.Section) error {
	switch {
	case len(c.Destinations) > 0 || c.Publish != nil || c.recorded:
	case r.file.RTSP.Address() == "" && (c.Payload.V != rtp.H264 || r.file.Web.Address() == ""):
		return at.Errorf("nobody gets the stream: give it destinations, such as [\"192.0.2.1:5004\"], or publish, or let rtsp listen")
	case c.Session != "":
		return at.Errorf("the session file names where results go: give them destinations, or leave session out")
	}
	var errs []error
	for i, dest := range c.Destinations {
		errs = append(errs, c.checkDestination(r, at.Key("destinations").Element(i), dest))
	}
	return yamlfile.Join(errs...)
}

// checkDestination refuses a destination that is invalid, or that another stream or the multicast of RTSP uses.
func (c *RTP) checkDestination(r *resolver, at yamlfile.Section, dest string) error {
	if err := send.CheckDestination(dest); err != nil {
		return at.Errorf("%w", err)
	}
	if r.file.RTSP.Gives(dest) {
		return at.Errorf("%s is one of the groups of rtsp.multicast, which readers get: take another one", dest)
	}
	key := strings.ToLower(dest)
	if a, err := netip.ParseAddrPort(dest); err == nil {
		key = netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
		if a.Addr().IsMulticast() { // several interfaces may send to one group
			key += "%" + c.Interface
		}
	}
	if first, taken := r.taken.take(key, at); taken {
		return at.Errorf("%s is the destination of %s already: give it another port", dest, first)
	}
	return nil
}

// check refuses pictures that the payload cannot carry.
func (c *RTP) check(f pipeline.Format) error {
	if err := c.Config("").CheckFormat(f); err != nil {
		return errors.New(plain(err, rtp.ErrFormat))
	}
	if c.Payload.V != rtp.H264 {
		return nil
	}
	if err := codec.CheckH264(f); err != nil {
		return errors.New(plain(err, codec.ErrFormat))
	}
	return nil
}

// Bits returns the minimum and the maximum bit rate, in bits per second, at which pictures of format f are encoded.
func (c *RTP) Bits(f pipeline.Format) (least, most int) {
	most = cmp.Or(1000*c.Bitrate, codec.DefaultBitrate(f))
	return min(cmp.Or(1000*c.BitrateMin, max(most/4, codec.MinBitrate)), most), most
}

// packets returns f with its memory laid out as packets, or false if the payload is not raw or has no such layout for
// f.
func (c *RTP) packets(f pipeline.Format) (pipeline.Format, bool) {
	if c.Payload.V != rtp.Raw {
		return f, false
	}
	return c.Config("").PacketReady(f)
}
