// SPDX-License-Identifier: Apache-2.0

package rtptest

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// MediaMTX is a streaming server on this machine. It accepts streams from the user "board" with the password "a-word",
// and serves them to everyone.
type MediaMTX struct {
	RTSP, HTTP string // HOST:PORT for RTSP and for WHIP
	Pulled     string // HOST:PORT of a server of RTSP: a reader of pull/NAME gets its NAME
	config     string
	program    string
	process    *exec.Cmd
}

// NewMediaMTX builds the server from its Go module. The module lacks two files of a release, its version and a script
// for HLS, whose contents tests do not need.
func NewMediaMTX(t testing.TB) *MediaMTX {
	t.Helper()
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/bluenviron/mediamtx@v1.13.1")
	c.Dir = dir
	out, err := c.Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	if err != nil {
		t.Fatalf("MediaMTX: %v %s", err, out)
	}
	source := filepath.Join(dir, "source")
	if err := os.CopyFS(source, os.DirFS(module.Dir)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"internal/core/VERSION": "v1.13.1", "internal/servers/hls/hls.min.js": "\n"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := EvenPorts(t, 4)
	x := &MediaMTX{
		RTSP: fmt.Sprintf("127.0.0.1:%d", p[0]), HTTP: fmt.Sprintf("127.0.0.1:%d", p[1]), Pulled: fmt.Sprintf("127.0.0.1:%d", p[3]),
		config: filepath.Join(dir, "mediamtx.yml"), program: filepath.Join(dir, "mediamtx"),
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", x.program, ".")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("MediaMTX: %v %s", err, out)
	}
	text := fmt.Sprintf("{logLevel: warn, rtmp: no, hls: no, srt: no, rtspTransports: [tcp], rtspAddress: '%s', webrtcAddress: '%s', "+
		"webrtcLocalUDPAddress: '127.0.0.1:%d', webrtcIPsFromInterfaces: no, webrtcAdditionalHosts: [127.0.0.1], "+
		"paths: {all_others: {}, '~^pull/(.+)$': {source: 'rtsp://%s/$G1', sourceOnDemand: yes}}, "+
		"authInternalUsers: [{user: board, pass: a-word, permissions: [{action: publish}]}, {user: any, permissions: [{action: read}]}]}\n",
		x.RTSP, x.HTTP, p[2], x.Pulled)
	if err := os.WriteFile(x.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return x
}

// Record returns a server that reads the stream of a URL by RTSP, and records it as fragmented MP4 in a folder, with a
// fragment each second, unless the folder is "". It serves nobody.
func (x *MediaMTX) Record(t testing.TB, url, folder string) *exec.Cmd {
	t.Helper()
	record := "no"
	if folder != "" {
		record = "yes"
	}
	config := filepath.Join(t.TempDir(), "mediamtx.yml")
	text := fmt.Sprintf("{logLevel: warn, rtsp: no, rtmp: no, hls: no, srt: no, webrtc: no, paths: {camera: {source: '%s', rtspTransport: tcp, "+
		"record: %s, recordPath: '%s', recordFormat: fmp4, recordPartDuration: 1s}}}\n", url, record, filepath.Join(folder, "%path-%s-%f"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return exec.Command(x.program, config)
}

// Start starts the server, and waits until it listens.
func (x *MediaMTX) Start(t testing.TB) {
	t.Helper()
	x.process = exec.Command(x.program, x.config)
	x.process.Stdout, x.process.Stderr = t.Output(), t.Output()
	if err := x.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Kill)
	for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if c, err := net.Dial("tcp", x.HTTP); err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(until) {
			t.Fatal("MediaMTX does not listen")
		}
	}
}

// Kill kills the server. Further calls do nothing.
func (x *MediaMTX) Kill() {
	_ = x.process.Process.Kill()
	_ = x.process.Wait()
}
