// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pion/ice/v4"
	"github.com/pion/sdp/v3"
)

// answered is the beginning of a server's answer.
const answered = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\nm=video 9 UDP/TLS/RTP/SAVPF 108\r\na=mid:0\r\n"

// candidatesOf returns the addresses of an answer's candidates.
func candidatesOf(t *testing.T, answer string) (list []string) {
	t.Helper()
	var d sdp.SessionDescription
	if err := d.Unmarshal([]byte(answer)); err != nil {
		t.Fatal(err)
	}
	for _, m := range append(d.MediaDescriptions, &sdp.MediaDescription{Attributes: d.Attributes}) {
		for _, a := range m.Attributes {
			if c, err := ice.UnmarshalCandidate(a.Value); a.IsICECandidate() && err == nil {
				list = append(list, c.Address())
			} else if a.IsICECandidate() {
				t.Errorf("%s is left", a.Value)
			}
		}
	}
	return list
}

// TestWithinReach checks that a server's candidates are used unless they are closer to this machine than the server.
func TestWithinReach(t *testing.T) {
	const global, shared, private, link, loop = "203.0.113.5", "100.64.0.1", "192.168.1.9", "169.254.169.254", "127.0.0.1"
	const global6, private6, link6 = "2001:db8::5", "fd00::1", "fe80::1"
	all := []string{global, shared, private, link, loop, global6, private6, link6, "0.0.0.0", "224.0.0.1"}
	text := answered
	for _, a := range append(slices.Clone(all), "::ffff:127.0.0.1", "host.local", "nas.example") {
		text += "a=candidate:1 1 udp 2130706431 " + a + " 8189 typ host\r\n"
	}
	text += "a=candidate:1 1\r\na=end-of-candidates\r\n"
	for name, tt := range map[string]struct {
		server string
		want   []string
	}{
		"of the internet":         {global, []string{global, global6}},
		"of the internet by IPv6": {global6, []string{global, global6}},
		"of a carrier":            {shared, []string{global, shared, private, global6, private6}},
		"of the network":          {private, []string{global, shared, private, global6, private6}},
		"of the link":             {link6, []string{global, shared, private, link, global6, private6, link6, "224.0.0.1"}},
		"of this machine":         {"::1", append(slices.Clone(all), "127.0.0.1")},
	} {
		got, err := withinReach([]byte(text), []netip.Addr{netip.MustParseAddr(tt.server)})
		list := candidatesOf(t, got)
		for i, a := range list {
			list[i] = strings.TrimPrefix(a, "::ffff:")
		}
		if err != nil || !slices.Equal(list, tt.want) {
			t.Errorf("%s: %q, want %q: %v", name, list, tt.want, err)
		}
		if !strings.HasPrefix(got, answered) || !strings.HasSuffix(got, "\r\na=end-of-candidates\r\n") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// FuzzWithinReach checks that no answer of a server on the internet leaves a candidate on this machine or its network.
func FuzzWithinReach(f *testing.F) {
	f.Add(answered + "a=candidate:1 1 udp 1 127.0.0.1 8189 typ host\r\n")
	f.Add("v=0\ro=- 1 2 IN IP4 h\rs=-\rt=0 0\ra=candidate: 1 udp 1 ::1%lo 8189\na=candidate:")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := withinReach([]byte(text), []netip.Addr{netip.MustParseAddr("203.0.113.5")})
		var again sdp.SessionDescription
		if err != nil || again.Unmarshal([]byte(got)) != nil {
			return // such an answer is not used
		}
		for _, a := range candidatesOf(t, got) {
			if at, err := netip.ParseAddr(a); err != nil || closeness(at) > 0 {
				t.Errorf("%q is left: %v", a, err)
			}
		}
	})
}
