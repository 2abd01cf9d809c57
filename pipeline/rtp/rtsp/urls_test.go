// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"net/url"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// TestURLs reads a stream by URLs as clients write them. A strict client resolves the track's control attribute against
// Content-Base (RFC 2326 §C.1.1, RFC 3986 §5.2), and asks with what comes out.
func TestURLs(t *testing.T) {
	_, server := serve(t, Config{}, "raw", send.Config{}, small(t, 30))
	for _, suffix := range []string{"", "/", "//", "?camera=1", "/?camera=1", "?a=b/c"} {
		c := dial(t, server, "raw")
		c.url += suffix
		status, h, err := c.ask("DESCRIBE", "", "Accept: application/sdp\r\n")
		if err != nil || status != "RTSP/1.0 200 OK" {
			t.Errorf("%q: DESCRIBE: %s %v", suffix, status, err)
			continue
		}
		at, err := url.Parse(h.Get("Content-Base"))
		if err != nil || at.User != nil || at.RawQuery != "" || strings.Contains(at.Path, "//") {
			t.Errorf("%q: Content-Base %q, %v", suffix, h.Get("Content-Base"), err)
			continue
		}
		track, err := at.Parse(control)
		if err != nil {
			t.Fatal(err)
		}
		c.url = track.String()
		if status, h, err = c.ask("SETUP", "", "Transport: "+overTCP+"\r\n"); err != nil || status != "RTSP/1.0 200 OK" {
			t.Errorf("%q: SETUP %s: %s %v", suffix, track, status, err)
			continue
		}
		c.session, _, _ = strings.Cut(h.Get("Session"), ";")
		c.url = at.String()
		if status, _, err := c.ask("PLAY", "", ""); err != nil || status != "RTSP/1.0 200 OK" {
			t.Errorf("%q: PLAY %s: %s %v", suffix, at, status, err)
			continue
		}
		if _, _, err := c.packet(); err != nil {
			t.Errorf("%q: %v", suffix, err)
		}
	}
}
