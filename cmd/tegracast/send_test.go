// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestSend: a running serve sends a stream to one more receiver, which gets whole frames by the description that send prints, until
// it is told to stop; once over HTTP and once over TLS. What cannot be is refused with the reason.
func TestSend(t *testing.T) {
	for name, secure := range map[string]bool{"http": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			p := rtptest.EvenPorts(t, 4)
			dir := t.TempDir()
			if status, _, errw := runs(t, "config", "tls", "--dir", dir, "--name", "camera.example.org"); status != exitOK {
				t.Fatal(errw)
			}
			access := ""
			if secure {
				access = fmt.Sprintf(", certificate: %[1]s/web.crt, key: %[1]s/web.key, password_file: %[1]s/web.password", dir)
			}
			config := programtest.Write(t, "config.yaml", fmt.Sprintf(`
web: {listen: "127.0.0.1:%d"%s}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 320, height: 240, rate: 20}}]
isp: [{name: isp, workers: 1}]
outputs:
  - {name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], checksum: true}}
  - {name: jpeg, scale: half, rtp: {payload: jpeg, destinations: ["127.0.0.1:%d"]}}
`, p[0], access, p[1], p[2]))
			more := fmt.Sprintf("127.0.0.1:%d", p[3])
			says(t, "nobody is there", []string{"send", "raw", more, "--config", config}, exitFailure, "nobody answers", "is serve running")
			serve := programtest.StartProgram(t, "serve", "--config", config, "--sdp-dir", dir)
			programtest.Await(t, filepath.Join(dir, "raw.sdp"))
			sdp := ""
			for began := time.Now(); sdp == ""; time.Sleep(50 * time.Millisecond) { // until the page is there
				status, out, errw := runs(t, "send", "raw", more, "--config", config)
				if sdp = out; status != exitOK && time.Since(began) > time.Minute {
					t.Fatal(errw)
				}
			}
			again := filepath.Join(dir, "again.sdp")
			if err := os.WriteFile(again, []byte(sdp), 0o600); err != nil {
				t.Fatal(err)
			}
			comesWhole(t, func() *programtest.Process {
				return programtest.StartProgram(t, "probe", again, "--json", "--duration", "1s")
			})
			if _, out, _ := runs(t, "send", "raw", more, "--config", config); out != sdp {
				t.Errorf("the second time it prints\n%s", out)
			}
			raws := fmt.Sprintf("127.0.0.1:%d", p[1])
			says(t, "another stream's", []string{"send", "jpeg", raws, "--config", config}, exitFailure, "of raw already")
			says(t, "no output", []string{"send", "film", more, "--config", config}, exitFailure, "no output of that name")
			says(t, "configured", []string{"send", "raw", raws, "--stop", "--config", config}, exitFailure, "not sent there")
			if status, _, errw := runs(t, "send", "raw", more, "--stop", "--config", config); status != exitOK {
				t.Error(errw)
			}
			says(t, "twice", []string{"send", "raw", more, "--stop", "--config", config}, exitFailure, "not sent there")
			serve.Stop(t)
			if !strings.Contains(serve.Out.String(), "delivered") {
				t.Errorf("no books: %s", serve.Out.String())
			}
		})
	}
}
