// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const serveConfig = `
sources:
  - name: camera
    slots: 8
    model: {width: 320, height: 240, rate: 5}
isp:
  - name: isp
    from: camera
outputs:
  - name: raw
    rtp: {payload: raw, destinations: ["` + HostAddress + `:5004", "` + HostAddress + `:5006"], checksum: true}
`

// build compiles the program for an architecture with the flags of the packaged one, so that the go command can reuse the
// compiled parts. An empty architecture means this machine's.
func build(t *testing.T, arch, out string) {
	t.Helper()
	mode := "default"
	if arch != "" {
		mode = "pie"
	}
	c := exec.Command("go", "build", "-trimpath", "-buildmode", mode, "-ldflags", "-s -w", "-o", out, "github.com/tegracast/tegracast/cmd/tegracast")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if b, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
}

// TestTegracast runs the real program in the machine: the validation run, and a stream to this host.
func TestTegracast(t *testing.T) {
	dir := t.TempDir()
	inside, outside, config := filepath.Join(dir, "arm64"), filepath.Join(dir, "host"), filepath.Join(dir, "config.yaml")
	build(t, "arm64", inside)
	build(t, "", outside)
	if err := os.WriteFile(config, []byte(serveConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	m := StartTest(t, Config{Network: true, Files: map[string]string{"/bin/tegracast": inside, "/etc/tegracast.yaml": config}})
	ctx := t.Context()

	r, err := m.Run(ctx, "tegracast", "loopback", "--device", "model", "--size", "100001", "--count", "2", "--json")
	if err != nil || r.Status != 0 {
		t.Fatalf("loopback: %d %v\n%s%s", r.Status, err, r.Stdout, r.Stderr)
	}
	if !json.Valid(r.Stdout) {
		t.Errorf("loopback said %q", r.Stdout)
	}

	if _, err := m.Shell(ctx, "mkdir /run/sdp && (tegracast serve --config /etc/tegracast.yaml --sdp-dir /run/sdp >/run/serve.log 2>&1 & echo $! > /run/serve.pid); "+
		"for i in $(seq 2400); do [ -s /run/sdp/raw.sdp ] && exit 0; usleep 50000; done; cat /run/serve.log; exit 1"); err != nil {
		t.Fatal(err)
	}
	sdp := filepath.Join(dir, "raw.sdp")
	if err := m.CopyOut(ctx, "/run/sdp/raw.sdp", sdp); err != nil {
		t.Fatal(err)
	}
	receive(t, m, outside, sdp)
	if out, err := m.Shell(ctx, "kill -TERM $(cat /run/serve.pid); for i in $(seq 2400); do pgrep tegracast >/dev/null || exit 0; usleep 50000; done; exit 1"); err != nil {
		t.Errorf("serve does not end: %v %s", err, out)
	}
}

// receive checks 3 s of the stream with probe, and receives 10 frames of its other destination with ffmpeg.
func receive(t *testing.T, m *Machine, tegracast, sdp string) {
	t.Helper()
	b, err := os.ReadFile(sdp)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	other, video := filepath.Join(dir, "other.sdp"), filepath.Join(dir, "video")
	if err := os.WriteFile(other, bytes.ReplaceAll(b, []byte("video 5004 "), []byte("video 5006 ")), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ffmpeg, err := m.HostCommand(ctx, "ffmpeg", "-v", "error", "-nostdin", "-protocol_whitelist", "file,udp,rtp", "-i", other,
		"-frames:v", "10", "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "uyvy422", video)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	ffmpeg.Stderr = &said
	if err := ffmpeg.Start(); err != nil {
		t.Fatal(err)
	}
	for try := 1; ; try++ { // a machine that was suspended is silent, and loses packets
		probe, err := m.HostCommand(ctx, tegracast, "probe", "--sdp", sdp, "--duration", "3s")
		if err != nil {
			t.Fatal(err)
		}
		out, err := probe.CombinedOutput()
		if err == nil {
			break
		}
		if try == 3 || !bytes.Contains(out, []byte(" wrong in 0,")) || !bytes.Contains(out, []byte(" malformed 0,")) {
			t.Errorf("probe: %v\n%s", err, out)
			break
		}
	}
	if err := ffmpeg.Wait(); err != nil {
		t.Errorf("ffmpeg: %v\n%s", err, &said)
	}
	if st, err := os.Stat(video); err != nil || st.Size() != 10*320*240*2 {
		t.Errorf("ffmpeg's file: %v %v, want 10 frames", st, err)
	}
}
