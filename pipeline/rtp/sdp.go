// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/pion/sdp/v3"

	"github.com/tegracast/tegracast/pipeline"
)

// DefaultPort is the default port of RFC 3551 §8.
const DefaultPort = 5004

// The attribute, and its value, by which a sender promises a checksum packet for each frame, defined in docs/rtp.md.
const (
	checksumAttribute = "x-tegracast-checksum"
	checksumKind      = "crc32c"
)

// Path contains the addresses and the TTL with which one copy of a stream is sent.
type Path struct {
	From netip.Addr
	To   netip.AddrPort
	TTL  int // TTL of packets to a multicast group; 0 means 1
	// Control is the stream's URL in an RTSP session, relative to that of the session, or empty.
	Control string
}

// Describe returns the SDP (RFC 8866) of a stream of frames of format f.
func Describe(s Stream, f pipeline.Format, p Path) ([]byte, error) {
	s = s.WithDefaults()
	if err := s.CheckFormat(f); err != nil {
		return nil, err
	}
	var session uint64
	if s.Start != nil {
		session = uint64(s.Start.SSRC)
	}
	kind := "video"
	if s.Payload == Results {
		kind = "application"
	}
	m := &sdp.MediaDescription{
		MediaName: sdp.MediaName{
			Media: kind, Port: sdp.RangedPort{Value: int(p.To.Port())}, Protos: []string{"RTP", "AVP"},
			Formats: []string{strconv.Itoa(int(s.Payload.Type()))},
		},
		ConnectionInformation: connection(p.To.Addr(), p.TTL),
	}
	if sourceSpecific(p.To.Addr()) { // receivers must specify the source in these ranges (RFC 4607 §1)
		m.WithValueAttribute("source-filter", fmt.Sprintf(" incl IN %s %s %s", ipVersion(p.To.Addr()), p.To.Addr(), p.From))
	}
	switch s.Payload {
	case JPEG:
		describeJPEG(m, f)
	case Results:
		m.WithValueAttribute("rtpmap", fmt.Sprintf("%d %s/%d", typeResults, resultsEncoding, ClockRate))
	case H264:
		describeH264(m, s, f)
	default:
		describeRaw(m, f)
	}
	if s.CaptureTime {
		m.WithValueAttribute("extmap", fmt.Sprintf("%d %s", captureTimeID, captureTimeURI)) // RFC 8285 §5
	}
	if p.Control != "" {
		m.WithValueAttribute("control", p.Control)
	}
	describeClock(m, s, p.From)
	if s.Checksum {
		m.WithValueAttribute(checksumAttribute, checksumKind)
	}
	d := &sdp.SessionDescription{
		Origin: sdp.Origin{
			Username: "-", SessionID: session, SessionVersion: session, NetworkType: "IN",
			AddressType: ipVersion(p.From), UnicastAddress: p.From.WithZone("").String(),
		},
		SessionName:       sdp.SessionName(s.Name),
		TimeDescriptions:  []sdp.TimeDescription{{}},
		MediaDescriptions: []*sdp.MediaDescription{m.WithPropertyAttribute("recvonly")},
	}
	return d.Marshal()
}

// JoinSDP returns the first session description with the media of the others appended.
func JoinSDP(first []byte, others ...[]byte) ([]byte, error) {
	var d sdp.SessionDescription
	if err := d.Unmarshal(first); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSDP, err)
	}
	for _, b := range others {
		var o sdp.SessionDescription
		if err := o.Unmarshal(b); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSDP, err)
		}
		d.MediaDescriptions = append(d.MediaDescriptions, o.MediaDescriptions...)
	}
	return d.Marshal()
}

// describeRaw adds the media type parameters of RFC 4175 §6 and SMPTE ST 2110-20:2017 §7. It omits TP, because
// conformance to a sender type of ST 2110-21 is not claimed.
func describeRaw(m *sdp.MediaDescription, f pipeline.Format) {
	raw, _ := rawOf(f.Pixel)
	colorimetry, rangeName := colorParameters(f.Color)
	fmtp := fmt.Sprintf("%d sampling=%s; width=%d; height=%d; ", typeRaw, raw.sampling, f.Width, f.Height)
	if f.Rate.Num > 0 {
		fmtp += fmt.Sprintf("exactframerate=%s; ", f.Rate)
	}
	fmtp += fmt.Sprintf("depth=%s; TCS=SDR; colorimetry=%s; PM=2110GPM; SSN=ST2110-20:2017; RANGE=%s", raw.depth, colorimetry, rangeName)
	m.WithValueAttribute("rtpmap", fmt.Sprintf("%d raw/%d", typeRaw, ClockRate)).WithValueAttribute("fmtp", fmtp)
}

// describeJPEG adds the attributes of JPEG, among them the exact size (RFC 6064 §4.2.1), which the payload header
// contains only in units of 8 pixels.
func describeJPEG(m *sdp.MediaDescription, f pipeline.Format) {
	m.WithValueAttribute("rtpmap", fmt.Sprintf("%d JPEG/%d", typeJPEG, ClockRate))
	m.WithValueAttribute("framesize", fmt.Sprintf("%d %d-%d", typeJPEG, f.Width, f.Height))
	describeRate(m, f)
}

// describeH264 adds the media type parameters of RFC 6184 §8.1. Without an encoder it adds no parameter sets.
func describeH264(m *sdp.MediaDescription, s Stream, f pipeline.Format) {
	fmtp := fmt.Sprintf("%d packetization-mode=1", typeH264)
	if s.H264 != nil {
		sps, pps := s.H264.ParameterSets()
		fmtp += fmt.Sprintf(";profile-level-id=%s;sprop-parameter-sets=%s,%s", ProfileLevelID(s.H264),
			base64.StdEncoding.EncodeToString(sps), base64.StdEncoding.EncodeToString(pps))
	}
	m.WithValueAttribute("rtpmap", fmt.Sprintf("%d H264/%d", typeH264, ClockRate)).WithValueAttribute("fmtp", fmtp)
	describeRate(m, f)
}

// describeRate adds the frame rate (RFC 8866 §6.13), if it is known.
func describeRate(m *sdp.MediaDescription, f pipeline.Format) {
	if f.Rate.Num > 0 {
		m.WithValueAttribute("framerate", strconv.FormatFloat(float64(f.Rate.Num)/float64(f.Rate.Den), 'f', -1, 64))
	}
}

// connection returns the c= line. For an IPv4 group it contains the TTL (RFC 8866 §5.7).
func connection(a netip.Addr, ttl int) *sdp.ConnectionInformation {
	c := &sdp.ConnectionInformation{
		NetworkType: "IN", AddressType: ipVersion(a), Address: &sdp.Address{Address: a.WithZone("").String()},
	}
	if a.Is4() && a.IsMulticast() {
		ttl = max(ttl, 1)
		c.Address.TTL = &ttl
	}
	return c
}

func ipVersion(a netip.Addr) string {
	if a.Is4() {
		return "IP4"
	}
	return "IP6"
}

// sourceSpecific reports whether a is in 232/8 or in a range ff3x::/32 (RFC 4607 §1). Groups of ff3x with a prefix of a
// network (RFC 3306 §4) are not.
func sourceSpecific(a netip.Addr) bool {
	if a.Is4() {
		return a.As4()[0] == 232
	}
	b := a.As16()
	return b[0] == 0xff && b[1]>>4 == 3 && b[2] == 0 && b[3] == 0
}
