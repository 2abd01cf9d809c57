// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestServeRTSP checks that serve prints the page's address and each stream's command once, that ffmpeg reads both
// outputs with the password, and that the readers are in the status, the metrics and the statistics.
func TestServeRTSP(t *testing.T) {
	t.Parallel()
	p := rtptest.EvenPorts(t, 5)
	text := fmt.Sprintf(`
web: {listen: "127.0.0.1:%d"}
rtsp: {listen: "127.0.0.1:%d", user: me, password_file: %s}
sources: [{name: camera, model: {width: 320, height: 240, rate: 20}}]
isp: [{name: isp, workers: 1}]
outputs:
  - {name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
  - {name: jpeg, scale: half, rtp: {payload: jpeg, destinations: ["127.0.0.1:%d"]}}
  - {name: asked, scale: half, rtp: {payload: jpeg, publish: {url: "rtsp://127.0.0.1:%d/camera"}}}
`, p[0], p[1], programtest.Write(t, "password", "a word\n"), p[2], p[3], p[4])
	appliance := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "config.yaml", text), "--sdp-dir", t.TempDir())
	base := fmt.Sprintf("http://127.0.0.1:%d", p[0])
	fetch(t, base+"/readyz")
	read := func(name, transport string, frames int) *programtest.Process {
		return programtest.Start(t, "ffmpeg", "-loglevel", "error", "-rtsp_transport", transport, "-i",
			fmt.Sprintf("rtsp://me:a%%20word@127.0.0.1:%d/%s", p[1], name), "-frames:v", fmt.Sprint(frames), "-f", "null", "-")
	}
	stays := read("raw", "tcp", 1<<20)
	published := programtest.Start(t, "ffmpeg", "-loglevel", "error", "-rtsp_flags", "listen", "-i", fmt.Sprintf("rtsp://127.0.0.1:%d/camera", p[4]),
		"-frames:v", "20", "-f", "null", "-")
	for _, reader := range []*programtest.Process{read("raw", "udp", 20), read("jpeg", "tcp", 20), read("asked", "udp", 20), published} {
		reader.Need(t, time.Minute)
	}
	if status, text := fetch(t, base+"/asked.sdp"); status != 404 {
		t.Errorf("a stream without destination has a file: status %d\n%s", status, text)
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, status := fetch(t, base+"/api/v1/status")
		_, metrics := fetch(t, base+"/metrics")
		if strings.Contains(status, `"by":"RTSP over TCP"`) && strings.Count(metrics, "tegracast_rtp_packets_total{") == 3 {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%s\n%s", status, metrics)
		}
	}
	appliance.Stop(t)
	_ = stays.Process.Kill()
	out := appliance.Out.String()
	raw := fmt.Sprintf("\n  watch: ffplay -fflags nobuffer rtsp://127.0.0.1:%d/raw\n", p[1])
	asked := fmt.Sprintf("\nasked: JPEG (RFC 2435), to whoever reads it by RTSP\n  watch: ffplay -fflags nobuffer rtsp://127.0.0.1:%d/asked\n", p[1])
	sent := regexp.MustCompile(`\(RTSP over TCP\): frames sent \d+`)
	if !strings.HasPrefix(out, "page: ") || strings.Count(out, raw) != 1 || !strings.Contains(out, asked) || !sent.MatchString(out) {
		t.Error(out)
	}
}

// TestRTSPConfiguration checks that a server open to others without a password, and an incomplete password, are refused
// with their line.
func TestRTSPConfiguration(t *testing.T) {
	for section, want := range map[string]string{
		"{listen: 0.0.0.0:8554}": "others can reach 0.0.0.0:8554",
		"{listen: localhost}":    "write an address and a port",
		"{user: me}":             "a user needs a password",
		"{password_file: /x}":    "whose password?",
		"{listen: none}":         "",

		"{multicast: 239.255.42.0/24}": "",
		"{multicast: 192.0.2.0/24}":    "write a range of multicast groups",
		"{multicast: yes}":             "write a range of multicast groups",

		"{listen: 0.0.0.0:8554, user: me, password_file: /etc/a/file}": "",
	} {
		isChecked(t, section, "rtsp: "+section+"\n"+programtest.Small, want, ":1:")
	}
}

// isChecked lets config check read a text with a part that is new. The text is valid if want is empty, and otherwise
// refused with these words and a place.
func isChecked(t *testing.T, what, text, want, place string) {
	t.Helper()
	status, out, errw := runs(t, "config", "check", programtest.Write(t, "config.yaml", text))
	if (status == 0) != (want == "") || !strings.Contains(errw, want) || want != "" && !strings.Contains(errw, place) {
		t.Errorf("%s: status %d\n%s%s", what, status, out, errw)
	}
}

// TestReadersGroups checks that no destination may be in the readers' multicast groups, and that an output without a
// destination may name their interface.
func TestReadersGroups(t *testing.T) {
	for change, want := range map[string]string{
		`["239.255.42.9:5004"]`:                "is one of the groups of rtsp.multicast",
		`["239.255.43.9:5004"]`:                "",
		`["127.0.0.1:5004"], interface: lo`:    "",
		`["239.255.43.9:5004"], interface: lo`: "",
	} {
		text := "rtsp: {multicast: 239.255.42.0/24}\n" + strings.Replace(programtest.Small, `["127.0.0.1:5004"]`, change, 1)
		isChecked(t, change, text, want, "")
	}
}

// TestPublishConfiguration checks that a stream that no server can take is refused with its line.
func TestPublishConfiguration(t *testing.T) {
	for publish, want := range map[string]string{
		"{url: rtmp://h/x}":                    "write rtsp://HOST:PORT/NAME",
		"{url: http://h/x}":                    "servers take payload h264 alone",
		"{url: rtsp://me:secret@h/x}":          "without user and password",
		"{user: me, url: rtsp://h/x}":          "a user needs a password",
		"{password_file: /x, url: rtsp://h/x}": "whose password?",
		"{token_file: /x, url: rtsp://h/x}":    "servers ask for a password",
		"{}":                                   "url",

		"{url: rtsp://h/x, user: me, password_file: /x}": "",
	} {
		text := strings.Replace(programtest.Small, `destinations: ["127.0.0.1:5004"]`, "publish: "+publish, 1)
		isChecked(t, publish, text, want, ":3:")
	}
}

// TestWHIPConfiguration is the same for servers that take H.264 by WebRTC.
func TestWHIPConfiguration(t *testing.T) {
	for publish, want := range map[string]string{
		"{url: https://h/whip}":                                "",
		"{url: http://h/whip}":                                 "",
		"{url: https://h/whip, token_file: /x}":                "",
		"{url: http://127.0.0.1:7880/whip/v1, token_file: /x}": "",
		"{url: http://h/whip, token_file: /x}":                 "write https",
		"{url: https://u:p@h/whip}":                            "without user and password",
		"{url: https://h/whip, user: me, password_file: /x}":   "write token_file",
		"{url: https:///whip}":                                 "write https://HOST/PATH",
	} {
		text := strings.Replace(programtest.Small, `payload: raw, destinations: ["127.0.0.1:5004"]`, "payload: h264, publish: "+publish, 1)
		isChecked(t, publish, text, want, ":3:")
	}
}

// TestNobodyGetsIt checks that a stream needs a destination or RTSP, or, for H.264, the page.
func TestNobodyGetsIt(t *testing.T) {
	alone := strings.Replace(programtest.Small, `, destinations: ["127.0.0.1:5004"]`, "", 1)
	if status, out, errw := runs(t, "config", "check", programtest.Write(t, "c.yaml", alone)); status != exitOK {
		t.Errorf("read by RTSP alone: status %d: %s%s", status, out, errw)
	}
	file := programtest.Write(t, "c.yaml", alone+"rtsp: {listen: none}\n")
	says(t, "nobody", []string{"config", "check", file}, exitUsage, "c.yaml:3:", "outputs[0].rtp", "nobody gets the stream", "destinations")
	h264 := strings.Replace(alone, "payload: raw", "payload: h264", 1) + "rtsp: {listen: none}\n"
	if status, out, errw := runs(t, "config", "check", programtest.Write(t, "c.yaml", h264)); status != exitOK {
		t.Errorf("watched on the page alone: status %d: %s%s", status, out, errw)
	}
	file = programtest.Write(t, "c.yaml", h264+"web: {listen: none}\n")
	says(t, "nobody", []string{"config", "check", file}, exitUsage, "c.yaml:3:", "outputs[0].rtp", "nobody gets the stream", "destinations")
}
