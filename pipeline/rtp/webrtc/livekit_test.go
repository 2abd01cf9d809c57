// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// A livekit is LiveKit's server on this machine.
type livekit struct {
	program, address string
	port             int
	process          *exec.Cmd
}

const (
	livekitKey    = "key"
	livekitSecret = "a secret of more than thirty-two letters"
)

// tool builds a program of the module livekittest.
func tool(t *testing.T, name, path string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	if b, err := exec.CommandContext(t.Context(), "go", "-C", "livekittest", "build", "-o", out, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return out
}

// start starts the server and waits until it answers.
func (l *livekit) start(t *testing.T) {
	t.Helper()
	config := fmt.Sprintf("{port: %d, bind_addresses: [127.0.0.1], keys: {%s: %s}, logging: {level: error}, "+
		"rtc: {udp_port: %d, tcp_port: 0, node_ip: 127.0.0.1, enable_loopback_candidate: true}}", l.port, livekitKey, livekitSecret, l.port+2)
	l.process = exec.Command(l.program, "--config-body", config)
	l.process.Stdout, l.process.Stderr = t.Output(), t.Output()
	if err := l.process.Start(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if r, err := http.Get(l.address); err == nil {
			_ = r.Body.Close()
			return
		}
		if time.Now().After(until) {
			t.Fatal("LiveKit does not answer")
		}
	}
}

// kill kills the server without a shutdown.
func (l *livekit) kill() {
	_ = l.process.Process.Kill()
	_ = l.process.Wait()
}

// grant returns a token for a room (JWT, RFC 7519, in LiveKit's form).
func grant(t *testing.T, who string) string {
	t.Helper()
	claims, err := json.Marshal(map[string]any{
		"iss": livekitKey, "sub": who, "exp": time.Now().Add(time.Hour).Unix(),
		"video": map[string]any{"room": "yard", "roomJoin": true, "canPublish": who == "board", "canSubscribe": who != "board"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString(claims)
	sum := hmac.New(sha256.New, []byte(livekitSecret))
	sum.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}

// pictures returns the pictures that a participant of the room receives, decoded by ffmpeg.
func (l *livekit) pictures(t *testing.T, subscriber string, frames int) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, subscriber, strings.Replace(l.address, "http", "ws", 1), grant(t, "viewer"), strconv.Itoa(frames))
	c.Stderr = t.Output()
	stream, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	d := exec.CommandContext(ctx, "ffmpeg", "-loglevel", "error", "-f", "h264", "-i", "pipe:0", "-fps_mode", "passthrough",
		"-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:1")
	d.Stdin, d.Stderr = bytes.NewReader(stream), t.Output()
	b, err := d.Output()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLiveKit publishes the stream to LiveKit's server by WHIP, and checks the pictures that a participant of its room
// receives with LiveKit's SDK, also after the server was killed and restarted.
func TestLiveKit(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	subscriber := tool(t, "subscriber", ".")
	port := rtptest.EvenPorts(t, 1)[0]
	l := &livekit{program: tool(t, "livekit", "github.com/livekit/livekit-server/cmd/server"), port: port, address: fmt.Sprintf("http://127.0.0.1:%d", port)}
	server, _, _ := serve(t, usual)
	p, err := server.Publish("camera", Remote{URL: l.address + "/whip/v1", Token: func() (string, error) { return grant(t, "board"), nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const w, h, frames = 320, 240, 60
	f := rtptest.Format(t, pipeline.I420, w, h, 30)
	sent := rtptest.NewSource(t, f, 0).Fill
	for round := range 2 {
		l.start(t)
		for until := time.Now().Add(patience); len(server.Viewers("camera")) == 0 && time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		}
		began := time.Now()
		got := l.pictures(t, subscriber, frames)
		all, right := rtptest.Right(got, f.Size(), func(b []byte) bool {
			return slices.ContainsFunc(sent, func(s *pipeline.Frame) bool { return rtptest.PSNR(s.Bytes[:w*h], b[:w*h]) > 25 })
		})
		t.Logf("round %d: %d of %d pictures are right, %v", round, right, all, time.Since(began))
		if right < frames-frames/4 || right < all { // the participant waits for a key frame
			t.Errorf("round %d: %d of %d pictures are right", round, right, all)
		}
		l.kill()
	}
}
