// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/logging"
	"github.com/pion/sdp/v3"
	"github.com/pion/transport/v5"
	pion "github.com/pion/webrtc/v4"

	"github.com/tegracast/tegracast/pipeline/rtp"
)

// The header extensions that a session's packets have if the offer includes them.
const (
	captureTime  = "http://www.webrtc.org/experiments/rtp-hdrext/abs-capture-time"
	playoutDelay = "http://www.webrtc.org/experiments/rtp-hdrext/playout-delay"
	sendTime     = "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time"
)

// choose returns the payload type in an offer with which H.264 can be received, with its parameters. It prefers the
// constrained baseline profile, because such a stream is sent. Its errors wrap errOffer or errNoH264.
func choose(offer string) (chosen pion.RTPCodecParameters, err error) {
	var d sdp.SessionDescription
	if err := d.UnmarshalString(offer); err != nil {
		return chosen, fmt.Errorf("%w: %w", errOffer, err)
	}
	if len(d.MediaDescriptions) == 0 {
		return chosen, errOffer
	}
	found := false
	for _, m := range d.MediaDescriptions {
		_, sends := m.Attribute("sendonly")
		_, inactive := m.Attribute("inactive")
		if m.MediaName.Media != "video" || m.MediaName.Port.Value == 0 || sends || inactive {
			continue
		}
		for _, f := range m.MediaName.Formats {
			n, err := strconv.ParseUint(f, 10, 8)
			if err != nil {
				continue
			}
			c, err := d.GetCodecForPayloadType(uint8(n))
			parameters := rtp.FormatParameters(c.Fmtp)
			if err != nil || !strings.EqualFold(c.Name, "H264") || c.ClockRate != rtp.ClockRate || parameters["packetization-mode"] != "1" {
				continue
			}
			if found && !strings.HasPrefix(strings.ToLower(parameters["profile-level-id"]), "42e0") {
				continue
			}
			found = true
			chosen = pion.RTPCodecParameters{PayloadType: pion.PayloadType(n), RTPCodecCapability: pion.RTPCodecCapability{
				MimeType: pion.MimeTypeH264, ClockRate: rtp.ClockRate, SDPFmtpLine: c.Fmtp,
				RTCPFeedback: feedback(),
			}}
		}
	}
	if !found {
		return chosen, errNoH264
	}
	return chosen, nil
}

// fmtpLevel matches the level of H.264 in its format parameters, and what is before it.
var fmtpLevel = regexp.MustCompile(`(?i)(a=fmtp:[0-9]+ [^\r\n]*profile-level-id=[0-9a-f]{4})[0-9a-f]{2}`)

// withLevel sets the level in an answer to that of profileLevel: pion repeats the offer's, but what is sent may have
// another (RFC 6184 §8.2.2). The profile remains the offer's, because browsers compare it.
func withLevel(answer, profileLevel string) string {
	if profileLevel == "" {
		return answer
	}
	return fmtpLevel.ReplaceAllString(answer, "${1}"+strings.ToLower(profileLevel[4:]))
}

// feedback returns the kinds of RTCP feedback that receivers may send.
func feedback() []pion.RTCPFeedback {
	return []pion.RTCPFeedback{{Type: "nack"}, {Type: "nack", Parameter: "pli"}, {Type: "ccm", Parameter: "fir"}, {Type: "goog-remb"}}
}

// way describes the path of a session's packets.
type way struct {
	lite bool         // the peer made the offer and has reached an address here, so no path is checked
	from []netip.Addr // addresses of this machine from which packets may be sent
}

// has reports whether packets may be sent from an address.
func (w way) has(ip net.IP) bool {
	a, _ := netip.AddrFromSlice(ip)
	return slices.ContainsFunc(w.from, func(from netip.Addr) bool {
		if from.IsLoopback() {
			from = netip.AddrFrom4([4]byte{127, 0, 0, 1}) // pion has no candidate for ::1
		}
		return a.Unmap() == from
	})
}

// addTrack adds a track for this side to send to a peer connection. Unless the way is lite, it adds a send-only
// transceiver, so that nothing is received.
func (w way) addTrack(peer *pion.PeerConnection, track pion.TrackLocal) (*pion.RTPSender, error) {
	if w.lite {
		return peer.AddTrack(track)
	}
	t, err := peer.AddTransceiverFromTrack(track, pion.RTPTransceiverInit{Direction: pion.RTPTransceiverDirectionSendonly})
	if err != nil {
		return nil, err
	}
	return t.Sender(), nil
}

// engine returns a pion API for one session that sends the codec, with the sockets of network n.
func engine(codec pion.RTPCodecParameters, w way, l limits, n transport.Net) (*pion.API, error) {
	media, between := &pion.MediaEngine{}, &interceptor.Registry{}
	if err := media.RegisterCodec(codec, pion.RTPCodecTypeVideo); err != nil {
		return nil, err
	}
	for _, uri := range []string{captureTime, playoutDelay, sendTime} {
		x := pion.RTPHeaderExtensionCapability{URI: uri}
		if err := media.RegisterHeaderExtension(x, pion.RTPCodecTypeVideo, pion.RTPTransceiverDirectionSendonly); err != nil {
			return nil, err
		}
	}
	if err := pion.ConfigureNack(media, between); err != nil {
		return nil, err
	}
	if err := pion.ConfigureRTCPReports(between); err != nil {
		return nil, err
	}
	var s pion.SettingEngine
	s.SetNet(n)
	s.SetLite(w.lite)
	s.SetIncludeLoopbackCandidate(true)
	s.SetIPFilter(w.has)
	s.SetNetworkTypes([]pion.NetworkType{pion.NetworkTypeUDP4, pion.NetworkTypeUDP6})
	s.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	s.SetICETimeouts(l.disconnected, l.failed, l.disconnected/2)
	s.LoggerFactory = &logging.DefaultLoggerFactory{Writer: io.Discard, DefaultLogLevel: logging.LogLevelDisabled}
	return pion.NewAPI(pion.WithMediaEngine(media), pion.WithInterceptorRegistry(between), pion.WithSettingEngine(s)), nil
}

// gatherLimit is the maximum duration of the search for this machine's candidates, which involves no other machine.
const gatherLimit = 2 * time.Second

func awaitGathered(gathered <-chan struct{}) error {
	select {
	case <-gathered:
		return nil
	case <-time.After(gatherLimit):
		return fmt.Errorf("webrtc: this machine's addresses were not found within %v", gatherLimit)
	}
}

// negotiate returns the answer to an offer, with the candidates.
func negotiate(peer *pion.PeerConnection, offer string) (answer string, err error) {
	if err := peer.SetRemoteDescription(pion.SessionDescription{Type: pion.SDPTypeOffer, SDP: offer}); err != nil {
		return "", fmt.Errorf("%w: %w", errOffer, err)
	}
	ours, err := peer.CreateAnswer(nil)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errOffer, err)
	}
	gathered := pion.GatheringCompletePromise(peer)
	if err := peer.SetLocalDescription(ours); err != nil {
		return "", fmt.Errorf("%w: %w", errOffer, err)
	}
	if err := awaitGathered(gathered); err != nil {
		return "", err
	}
	return reachable(peer.LocalDescription().SDP)
}

// reachable moves the candidates to the first section of the answer that is not refused. pion puts them into the first
// section, which may be for sound.
func reachable(answer string) (string, error) {
	var d sdp.SessionDescription
	if err := d.UnmarshalString(answer); err != nil {
		return "", err
	}
	var moved []sdp.Attribute
	for _, m := range d.MediaDescriptions {
		if m.MediaName.Port.Value != 0 {
			m.Attributes = append(m.Attributes, moved...)
			break
		}
		m.Attributes = slices.DeleteFunc(m.Attributes, func(a sdp.Attribute) bool {
			is := a.Key == "candidate" || a.Key == "end-of-candidates"
			if is {
				moved = append(moved, a)
			}
			return is
		})
	}
	b, err := d.Marshal()
	return string(b), err
}
