// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/pion/sdp/v3"

	"github.com/tegracast/tegracast/pipeline"
)

// Media is one stream of an SDP.
type Media struct {
	Payload     Payload
	PayloadType uint8
	Address     netip.Addr           // destination address of the stream
	Port        int                  // RTP port
	RTCPPort    int                  // Port if Mux is true; otherwise the port of a=rtcp (RFC 3605), or else Port + 1
	Mux         bool                 // RTCP comes to Port, too (a=rtcp-mux, RFC 5761)
	Source      netip.Addr           // the only permitted sender, from a=source-filter (RFC 4570); the zero Addr: any
	Pixel       pipeline.PixelFormat // of raw video; 0 means UYVY
	Width       int                  // pixels; 0: given only by the pictures
	Height      int                  // lines; 0: given only by the pictures
	Rate        pipeline.Rate        // zero: not given
	Checksum    bool                 // the sender promises each frame's CRC-32C in an RTCP packet (docs/rtp.md)
}

// Format returns the format of the frames. For JPEG and H.264 it returns the zero Format, because only the pictures
// contain the format. The error wraps pipeline.ErrFormat.
func (m Media) Format() (pipeline.Format, error) {
	if m.Payload != Raw {
		return pipeline.Format{}, nil
	}
	raw, ok := rawOf(m.Pixel)
	if !ok {
		return pipeline.Format{}, fmt.Errorf("%w: pixels %s, must be one of %s", pipeline.ErrFormat, m.Pixel, rawPixels())
	}
	return pipeline.NewFormat(raw.pixel, m.Width, m.Height, m.Rate)
}

// maxSDP is the maximum size of an SDP in bytes; a normal one has about a thousand.
const maxSDP = 32 << 10

// sdpText is the text of an SDP, used to find the line of an error.
type sdpText []byte

// at returns an error that wraps ErrSDP and names the first line with the given prefix in media section m (0: the
// session), or the first line of the section if there is none.
func (t sdpText) at(m int, prefix, format string, a ...any) error {
	section, first := 0, 0
	for i, line := range strings.Split(string(t), "\n") {
		if strings.HasPrefix(line, "m=") {
			section++
		}
		if first == 0 && section == m && m > 0 {
			first = i + 1
		}
		if section == m && strings.HasPrefix(line, prefix) {
			first = i + 1
			break
		}
	}
	return fmt.Errorf("%w: line %d: %s", ErrSDP, max(first, 1), fmt.Sprintf(format, a...))
}

// ParseSDP returns the streams of an SDP (RFC 8866) that package receive can receive: raw (RFC 4175) in YCbCr-4:2:2 with 8
// or 10 bits and RGB with 8 bits, JPEG (RFC 2435), H.264 (RFC 6184, modes 0 and 1), and results (docs/results-output.md). It
// ignores media other than video and results. It returns an error that wraps ErrSDP if there is none of these, or a video
// stream that cannot be received.
func ParseSDP(b []byte) ([]Media, error) {
	if len(b) > maxSDP {
		return nil, fmt.Errorf("%w: %d bytes: more than %d cannot be a session description", ErrSDP, len(b), maxSDP)
	}
	text := sdpText(b)
	d, err := grammar(b)
	if err != nil {
		return nil, err
	}
	var out []Media
	for i, m := range d.MediaDescriptions {
		p := mediaParser{text: text, section: i + 1, desc: m, session: d}
		if m.MediaName.Media != "video" && !p.hasResults() {
			continue
		}
		media, err := p.parse()
		if err != nil {
			return nil, err
		}
		out = append(out, media)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: no m=video line: give the file that the sender has written", ErrSDP)
	}
	return out, nil
}

// grammar parses b. It finds the line of a syntax error by bisection, because any prefix that contains this line fails
// to parse.
func grammar(b []byte) (*sdp.SessionDescription, error) {
	d := &sdp.SessionDescription{}
	if len(b) < 2 || b[0] != 'v' || b[1] != '=' {
		return nil, fmt.Errorf("%w: line 1: must be v=0: this is no session description: give the file that the sender has written", ErrSDP)
	}
	err := d.Unmarshal(b)
	if err == nil {
		return d, nil
	}
	lines := strings.SplitAfter(string(b), "\n")
	end, ends := 0, make([]int, len(lines))
	for i, line := range lines {
		end += len(line)
		ends[i] = end
	}
	i := sort.Search(len(lines)-1, func(i int) bool { return (&sdp.SessionDescription{}).Unmarshal(b[:ends[i]]) != nil })
	return nil, fmt.Errorf("%w: line %d: %q: breaks RFC 8866: %w", ErrSDP, i+1, strings.TrimSpace(lines[i]), err)
}

// mediaParser parses one media section.
type mediaParser struct {
	text    sdpText
	section int
	desc    *sdp.MediaDescription
	session *sdp.SessionDescription
	media   Media
}

func (p *mediaParser) bad(prefix, format string, a ...any) error {
	return p.text.at(p.section, prefix, format, a...)
}

func (p *mediaParser) parse() (Media, error) {
	for _, step := range []func() error{p.name, p.address, p.control, p.encoding, p.rate} {
		if err := step(); err != nil {
			return Media{}, err
		}
	}
	return p.media, nil
}

func (p *mediaParser) name() error {
	n := p.desc.MediaName
	if proto := strings.Join(n.Protos, "/"); proto != "RTP/AVP" && proto != "RTP/AVPF" { // as AVP (RFC 4585 §4)
		return p.bad("m=", "protocol %q: only RTP/AVP and RTP/AVPF are received", proto)
	}
	if n.Port.Value < 1 || n.Port.Value > 65534 {
		return p.bad("m=", "port %d: must be from 1 to 65534", n.Port.Value)
	}
	if len(n.Formats) == 0 {
		return p.bad("m=", "no payload type")
	}
	pt, err := strconv.ParseUint(n.Formats[0], 10, 7)
	if err != nil {
		return p.bad("m=", "payload type %q: must be from 0 to 127", n.Formats[0])
	}
	p.media.PayloadType, p.media.Port, p.media.RTCPPort = uint8(pt), n.Port.Value, n.Port.Value+1
	kind, _ := p.desc.Attribute(checksumAttribute)
	p.media.Checksum = kind == checksumKind
	return nil
}

// address parses c= of the media section, or else of the session, and a=source-filter of the media section.
func (p *mediaParser) address() error {
	c := p.desc.ConnectionInformation
	if c == nil {
		c = p.session.ConnectionInformation
	}
	if c == nil || c.Address == nil {
		return p.bad("m=", "no c= line for this medium: add c=IN IP4 ADDRESS")
	}
	host, _, _ := strings.Cut(c.Address.Address, "/") // strips the TTL of a group
	a, err := netip.ParseAddr(host)
	if err != nil {
		return p.text.at(p.connectionSection(), "c=", "address %q: must be an IP address", host)
	}
	p.media.Address = a.Unmap()
	filter, ok := p.desc.Attribute("source-filter")
	if !ok {
		return nil
	}
	f := strings.Fields(filter) // the format is: incl IN IP4 group source
	if len(f) != 5 || f[0] != "incl" {
		return p.bad("a=source-filter", "source filter %q: only incl with one source is supported", filter)
	}
	if p.media.Source, err = netip.ParseAddr(f[4]); err != nil || p.media.Source.Is4() != p.media.Address.Is4() {
		return p.bad("a=source-filter", "source %q: must be an address of the group's IP version", f[4])
	}
	return nil
}

func (p *mediaParser) connectionSection() int {
	if p.desc.ConnectionInformation == nil {
		return 0
	}
	return p.section
}

func (p *mediaParser) control() error {
	if _, p.media.Mux = p.desc.Attribute("rtcp-mux"); p.media.Mux {
		p.media.RTCPPort = p.media.Port
		return nil
	}
	v, ok := p.desc.Attribute("rtcp")
	if !ok {
		return nil
	}
	port, _, _ := strings.Cut(v, " ")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return p.bad("a=rtcp:", "port %q: must be from 1 to 65535", port)
	}
	p.media.RTCPPort = int(n)
	return nil
}

// encoding determines the payload format. The static payload type 26 needs no rtpmap (RFC 3551 §6).
func (p *mediaParser) encoding() error {
	name := p.attribute("rtpmap")
	switch {
	case strings.EqualFold(name, "raw/90000"):
		p.media.Payload = Raw
		return p.raw()
	case strings.EqualFold(name, "jpeg/90000"), name == "" && p.media.PayloadType == typeJPEG:
		p.media.Payload = JPEG
		return p.jpeg()
	case strings.EqualFold(name, "h264/90000"):
		p.media.Payload = H264
		return p.h264()
	case p.hasResults():
		p.media.Payload = Results
		return nil
	case name == "":
		return p.bad("m=", "payload type %d has no a=rtpmap line", p.media.PayloadType)
	}
	return p.bad("a=rtpmap:", "encoding %q: only raw/90000, JPEG/90000 and H264/90000 are received", name)
}

// hasResults reports whether the first payload type is that of results.
func (p *mediaParser) hasResults() bool {
	return slices.ContainsFunc(p.desc.Attributes, func(a sdp.Attribute) bool {
		pt, name, _ := strings.Cut(a.Value, " ")
		return a.Key == "rtpmap" && slices.Contains(p.desc.MediaName.Formats[:min(1, len(p.desc.MediaName.Formats))], pt) &&
			strings.EqualFold(strings.TrimSpace(name), resultsEncoding+"/90000")
	})
}

// attribute returns the value of the attribute key for the payload type, which precedes the value, or "" if there is
// none.
func (p *mediaParser) attribute(key string) string {
	for _, a := range p.desc.Attributes {
		pt, value, _ := strings.Cut(a.Value, " ")
		if a.Key == key && pt == strconv.Itoa(int(p.media.PayloadType)) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// parameters returns the media type parameters.
func (p *mediaParser) parameters() map[string]string { return FormatParameters(p.attribute("fmtp")) }

// FormatParameters returns the parameters of an a=fmtp line, without its payload type, by their names in lower case:
// names of media type parameters are case-insensitive (RFC 4855 §3, RFC 2045 §5.1).
func FormatParameters(fmtp string) map[string]string {
	params := map[string]string{}
	for f := range strings.SplitSeq(fmtp, ";") {
		k, v, _ := strings.Cut(strings.TrimSpace(f), "=")
		params[strings.ToLower(k)] = v
	}
	return params
}

// h264 refuses the interleaved mode, in which packets arrive in a different order (RFC 6184 §6.2).
func (p *mediaParser) h264() error {
	if mode := p.parameters()["packetization-mode"]; mode != "" && mode != "0" && mode != "1" {
		return p.bad("a=fmtp:", "packetization-mode %q: only 0 and 1 are received", mode)
	}
	return nil
}

// raw parses the media type parameters of RFC 4175 §6.
func (p *mediaParser) raw() error {
	params := p.parameters()
	i := slices.IndexFunc(rawFormats, func(f rawFormat) bool { return f.sampling == params["sampling"] && f.depth == params["depth"] })
	if i < 0 {
		return p.bad("a=fmtp:", "sampling %q, depth %q: only %s are received", params["sampling"], params["depth"], rawSamplings())
	}
	p.media.Pixel = rawFormats[i].pixel
	if _, ok := params["interlace"]; ok {
		return p.bad("a=fmtp:", "interlace: only progressive video is received")
	}
	w, werr := strconv.ParseUint(params["width"], 10, 16)
	h, herr := strconv.ParseUint(params["height"], 10, 16)
	if werr != nil || herr != nil {
		return p.bad("a=fmtp:", "width %q, height %q: must be numbers", params["width"], params["height"])
	}
	if _, err := pipeline.NewFormat(p.media.Pixel, int(w), int(h), pipeline.Rate{}); err != nil {
		return p.bad("a=fmtp:", "%v", err)
	}
	p.media.Width, p.media.Height = int(w), int(h)
	if r := params["exactframerate"]; r != "" {
		num, den, fraction := strings.Cut(r, "/")
		if !fraction {
			den = "1"
		}
		return p.setRate("a=fmtp:", r, num, den)
	}
	return nil
}

// jpeg parses the exact size (RFC 6064 §4.2.1), if the SDP contains it.
func (p *mediaParser) jpeg() error {
	size := p.attribute("framesize")
	if size == "" {
		return nil
	}
	ws, hs, _ := strings.Cut(size, "-")
	w, werr := strconv.ParseUint(ws, 10, 16)
	h, herr := strconv.ParseUint(hs, 10, 16)
	if werr != nil || herr != nil || w < 1 || h < 1 || w > maxJPEG || h > maxJPEG {
		return p.bad("a=framesize:", "frame size %q: must be width-height, up to %d each", size, maxJPEG)
	}
	p.media.Width, p.media.Height = int(w), int(h)
	return nil
}

// rate parses a=framerate (RFC 8866 §6.13), a decimal number, unless exactframerate has already given the rate. It uses
// at most four decimal places.
func (p *mediaParser) rate() error {
	v, ok := p.desc.Attribute("framerate")
	if !ok || p.media.Rate.Num != 0 {
		return nil
	}
	whole, fraction, _ := strings.Cut(v, ".")
	if len(fraction) > 4 {
		fraction = fraction[:4]
	}
	return p.setRate("a=framerate:", v, whole+fraction, "1"+strings.Repeat("0", len(fraction)))
}

func (p *mediaParser) setRate(prefix, value, num, den string) error {
	n, nerr := strconv.ParseUint(num, 10, 31)
	d, derr := strconv.ParseUint(den, 10, 31)
	if nerr != nil || derr != nil || n == 0 || d == 0 {
		return p.bad(prefix, "frame rate %q: must be a positive number or fraction", value)
	}
	p.media.Rate = pipeline.Rate{Num: int(n), Den: int(d)}
	return nil
}
