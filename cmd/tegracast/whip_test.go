// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// TestServeWHIP checks that serve offers H.264 to a server with the current token of the file, and tries again when it is
// refused. The token is not in the log.
func TestServeWHIP(t *testing.T) {
	token := programtest.Write(t, "token", "first-secret\n")
	asked := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		offer, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || !strings.Contains(string(offer), "H264/90000") {
			t.Errorf("%s %s: %s", r.Method, r.URL, offer)
		}
		asked <- r.Header.Get("Authorization")
		if err := os.WriteFile(token, []byte("second-secret\n"), 0o600); err != nil {
			t.Error(err)
		}
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer server.Close()
	text := fmt.Sprintf(`
web: {listen: none}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 320, height: 240, rate: 20}}]
isp: [{name: isp, workers: 1}]
outputs: [{name: live, rtp: {payload: h264, publish: {url: "%s/whip", token_file: %s}}}]
`, server.URL, token)
	appliance := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "config.yaml", text), "--sdp-dir", t.TempDir())
	for _, want := range []string{"Bearer first-secret", "Bearer second-secret"} {
		select {
		case got := <-asked:
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the server is not asked\n%s", appliance.Err.String())
		}
	}
	appliance.Stop(t)
	if log := appliance.Err.String(); !strings.Contains(log, "403 Forbidden") || strings.Contains(log, "-secret") {
		t.Error(log)
	}
}
