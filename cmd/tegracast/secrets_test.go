// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestPasswordsAreNotLogged checks that neither the passwords of the page and RTSP, nor wrong ones that clients have
// tried, appear in the complete log, in serve's output, or in the page's data.
func TestPasswordsAreNotLogged(t *testing.T) {
	dir, p := t.TempDir(), rtptest.EvenPorts(t, 2)
	if status, _, errw := runs(t, "config", "tls", "--dir", dir); status != exitOK {
		t.Fatal(errw)
	}
	b, err := os.ReadFile(filepath.Join(dir, "web.password"))
	if err != nil {
		t.Fatal(err)
	}
	page, rtsp, wrong := strings.TrimSpace(string(b)), "hidden-phrase", "mistyped-phrase"
	text := fmt.Sprintf(`
web: {listen: "127.0.0.1:%d", certificate: %s/web.crt, key: %[2]s/web.key, password_file: %[2]s/web.password}
rtsp: {listen: "127.0.0.1:%d", user: me, password_file: %s}
sources: [{name: camera, model: {width: 320, height: 240, rate: 20}}]
isp: [{name: isp, workers: 1}]
outputs: [{name: raw, rtp: {payload: raw}}]
`, p[0], dir, p[1], programtest.Write(t, "password", rtsp+"\n"))
	appliance := programtest.StartProgram(t, "serve", "--log-level", "debug", "--config", programtest.Write(t, "config.yaml", text), "--sdp-dir", dir)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ask := func(path, password string) (status int, body string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", p[0], path), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("me", password)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(b)
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if c, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p[0]), &tls.Config{InsecureSkipVerify: true}); err == nil {
			_ = c.Close()
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("the page does not listen")
		}
	}
	for password, want := range map[string]int{wrong: http.StatusUnauthorized, page: http.StatusOK} {
		if status, _ := ask("/api/v1/status", password); status != want {
			t.Errorf("status %d, want %d", status, want)
		}
	}
	for password, want := range map[string]bool{wrong: false, rtsp: true} {
		reader := programtest.Start(t, "ffmpeg", "-loglevel", "error", "-rtsp_transport", "tcp", "-fpsprobesize", "0", "-analyzeduration", "200000", "-i",
			fmt.Sprintf("rtsp://me:%s@127.0.0.1:%d/raw", password, p[1]), "-frames:v", "5", "-f", "null", "-")
		if status := reader.Wait(t, time.Minute); (status == 0) != want {
			t.Errorf("ffmpeg: status %d", status)
		}
	}
	_, state := ask("/api/v1/status", page)
	_, configuration := ask("/api/v1/config", page)
	appliance.Stop(t)
	log := appliance.Err.String()
	if !strings.Contains(log, "a reader begins") {
		t.Errorf("the log does not know the reader: %s", log)
	}
	for _, secret := range []string{page, rtsp, wrong} {
		for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte("me:" + secret))} {
			if strings.Contains(log+appliance.Out.String()+state+configuration, form) {
				t.Errorf("%s is told: %s%s%s%s", form, log, appliance.Out.String(), state, configuration)
			}
		}
	}
}
