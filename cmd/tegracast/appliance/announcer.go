// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// An announcer describes the streams: it writes their SDP files, and prints how to watch them.
type announcer struct {
	dir     string // folder of the SDP files
	out     io.Writer
	flows   *flows
	streams *streams.Set
	log     *slog.Logger
}

// announceStreams writes the SDP files of all streams that have destinations, and prints how to watch the streams named
// in fresh.
func (n *announcer) announceStreams(fresh map[string]bool) error {
	all := n.flows.streams()
	for _, s := range all {
		if p := s.config.Publish; p != nil && fresh[s.name] {
			fmt.Fprintf(n.out, "%s: %s is published to %s\n", s.name, payloadNames[s.config.Payload.V], p.URL)
		}
		if len(s.config.Destinations) == 0 {
			if fresh[s.name] {
				n.announceReaders(s)
			}
			continue
		}
		text, err := s.describe(all)
		if err != nil {
			return err
		}
		file := n.file(s.name)
		if err := files.WriteText(file, 0o644, text); err != nil {
			return fmt.Errorf("%w: name another folder with --sdp-dir", err)
		}
		if fresh[s.name] {
			to := strings.Join(s.config.Destinations, ", ")
			fmt.Fprintf(n.out, "%s: %s to %s, described by %s\n", s.name, payloadNames[s.config.Payload.V], to, file)
		}
		if fresh[s.name] && s.config.Payload.V != rtp.Results {
			n.announceCommand(s, file)
		}
	}
	return nil
}

// announceCommand prints the command that plays a stream by RTSP, or from its SDP file if RTSP is not served. It prints
// nothing on a terminal whose block shows the command.
func (n *announcer) announceCommand(s *stream, file string) {
	url := n.streams.URL(s.name)
	_, shown := n.out.(*terminal.Screen)
	switch {
	case url == "":
		fmt.Fprintf(n.out, "  watch: ffplay -protocol_whitelist file,udp,rtp -fflags nobuffer -buffer_size 4194304 -i %s\n", file)
	case !shown:
		fmt.Fprintf(n.out, "  watch: ffplay -fflags nobuffer %s\n", url)
	}
}

// announceURLs prints the URLs of the streams after the RTSP server's address has changed.
func (n *announcer) announceURLs() {
	for _, s := range n.flows.streams() {
		if url := n.streams.URL(s.name); url != "" {
			fmt.Fprintf(n.out, "%s: %s\n", s.name, url)
		}
	}
}

// file returns the path of a stream's SDP file.
func (n *announcer) file(stream string) string { return filepath.Join(n.dir, stream+".sdp") }

// removeFile removes the SDP file of a stream that no longer exists or is stopped. It ignores errors.
func (n *announcer) removeFile(stream string) { _ = os.Remove(n.file(stream)) }

// rewriteFiles writes the SDP files again after a change of streams. It only logs errors.
func (n *announcer) rewriteFiles() {
	if err := n.announceStreams(nil); err != nil {
		n.log.Warn("the descriptions of the streams cannot be written again", "error", err)
	}
}

// describeStream returns the SDP of an RTP stream that has destinations, or errNoOutput if there is no such stream.
func (n *announcer) describeStream(name string) ([]byte, error) {
	all := n.flows.streams()
	if i := slices.IndexFunc(all, func(s *stream) bool { return s.name == name && len(s.config.Destinations) > 0 }); i >= 0 {
		return all[i].describe(all)
	}
	return nil, errNoOutput
}

// announceReaders prints how to watch a stream that has no destinations.
func (n *announcer) announceReaders(s *stream) {
	switch url, what := n.streams.URL(s.name), payloadNames[s.config.Payload.V]; {
	case url != "":
		fmt.Fprintf(n.out, "%s: %s, to whoever reads it by RTSP\n", s.name, what)
		n.announceCommand(s, "")
	case s.config.Payload.V == rtp.H264:
		fmt.Fprintf(n.out, "%s: %s, to whoever looks at the page\n", s.name, what)
	case s.config.Publish != nil:
	case s.config.Recorded():
		fmt.Fprintf(n.out, "%s: %s, only recorded: RTSP is not served\n", s.name, what)
	default: // a warning has given the reason
		fmt.Fprintf(n.out, "%s: %s, which nobody can read: RTSP is not served\n", s.name, what)
	}
}

// describe returns the SDP of a stream, joined with that of each stream of results that names it as its session.
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
