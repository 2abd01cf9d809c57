// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tegracast/tegracast/pipeline/rtp"
)

// announce writes the SDP files, and says of the outputs that are new how to watch them.
func (r *runner) announce(fresh map[string]bool) error {
	streams := r.a.streams()
	for _, s := range streams {
		if p := s.config.Publish; p != nil && fresh[s.name] {
			fmt.Fprintf(r.a.env.Out, "%s: %s is published to %s\n", s.name, payloadNames[s.config.Payload.V], p.URL)
		}
		if len(s.config.Destinations) == 0 {
			if fresh[s.name] {
				r.announceReaders(s)
			}
			continue
		}
		text, err := s.describe(streams)
		if err != nil {
			return err
		}
		file := filepath.Join(r.dir, s.name+".sdp")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return fmt.Errorf("%w: name another folder with --sdp-dir", err)
		}
		if fresh[s.name] {
			fmt.Fprintf(r.a.env.Out, "%s: %s to %s, described by %s\n", s.name, payloadNames[s.config.Payload.V], strings.Join(s.config.Destinations, ", "), file)
		}
		if fresh[s.name] && s.config.Payload.V != rtp.Results {
			fmt.Fprintf(r.a.env.Out, "  watch: ffplay -protocol_whitelist file,udp,rtp -fflags nobuffer -buffer_size 4194304 -i %s\n", file)
		}
	}
	return nil
}

// announceReaders says how to watch a stream that has no destination.
func (r *runner) announceReaders(s *stream) {
	switch url, what := r.a.egress.URL(s.name), payloadNames[s.config.Payload.V]; {
	case url != "":
		fmt.Fprintf(r.a.env.Out, "%s: %s, to whoever reads it by RTSP\n  watch: ffplay -fflags nobuffer %s\n", s.name, what, url)
	case s.config.Payload.V == rtp.H264:
		fmt.Fprintf(r.a.env.Out, "%s: %s, to whoever looks at the page\n", s.name, what)
	case s.config.Publish != nil:
	default: // a warning has said why
		fmt.Fprintf(r.a.env.Out, "%s: %s, which nobody can read: RTSP is not served\n", s.name, what)
	}
}

var payloadNames = [...]string{
	rtp.Raw: "raw video (RFC 4175)", rtp.JPEG: "JPEG (RFC 2435)", rtp.H264: "H.264 (RFC 6184)", rtp.Results: "results as JSON",
}

// describe is the SDP of a stream, with the results that stand beside it.
func (s *stream) describe(all []*stream) ([]byte, error) {
	text, err := s.sink.SDP()
	for _, o := range all {
		if o.config.Session != s.name || err != nil {
			continue
		}
		var beside []byte
		if beside, err = o.sink.SDP(); err == nil {
			text, err = rtp.JoinSDP(text, beside)
		}
	}
	return text, err
}
