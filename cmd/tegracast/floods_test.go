// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestFloods attacks the page like a hostile network: 10,000 idle connections, requests that never end, endless headers
// and bodies. The raw stream must lose no frame, the page must answer, and nothing may be left afterwards.
func TestFloods(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	programtest.Quiet(t, flood)
}

func flood(t *testing.T) error {
	ports := rtptest.EvenPorts(t, 2)
	web, dir := fmt.Sprintf("127.0.0.1:%d", ports[0]), t.TempDir()
	text := strings.Replace(programtest.Small, "127.0.0.1:5004", fmt.Sprintf("127.0.0.1:%d", ports[1]), 1)
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "config.yaml", "web: {listen: \""+web+"\"}\n"+text), "--sdp-dir", dir)
	programtest.Await(t, filepath.Join(dir, "raw.sdp"))
	fetch(t, "http://"+web+"/readyz")
	before := programtest.Resident(t, serve.Process.Pid)
	probe := programtest.StartProgram(t, "probe", filepath.Join(dir, "raw.sdp"), "--duration", "30s", "--json")
	programtest.Listening(t, probe.Process.Pid, ports[1])
	for name, attack := range attacks {
		for range attack.times {
			c, err := net.Dial("tcp", web)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			defer c.Close()
			go func() { _ = attack.do(c) }()
		}
		began := time.Now()
		if status, _ := fetch(t, "http://"+web+"/healthz"); status != 200 || time.Since(began) > 10*time.Second {
			t.Errorf("%s: the page answers %d after %v", name, status, time.Since(began))
		}
	}
	probe.Wait(t, time.Minute)
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", serve.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	after := programtest.Resident(t, serve.Process.Pid)
	t.Logf("%d descriptors, %.0f KiB of memory, and %.0f before", len(open), after, before)
	if len(open) > 200 || after > before+100<<10 {
		t.Errorf("%d descriptors are open, and the memory went from %.0f to %.0f KiB", len(open), before, after)
	}
	if v := probe.Verdict(t); !v.Clean {
		return fmt.Errorf("the stream has lost %+v", v)
	}
	return nil
}

// attacks lists what an attacker does with a connection.
var attacks = map[string]struct {
	times int
	do    func(net.Conn) error
}{
	"nothing": {10000, func(net.Conn) error { return nil }},
	"a letter a second": {200, func(c net.Conn) error {
		for _, b := range "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 1000) {
			if _, err := c.Write([]byte{byte(b)}); err != nil {
				return err
			}
			time.Sleep(time.Second)
		}
		return nil
	}},
	"a header without end": {50, func(c net.Conn) error { return endless(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX: ") }},
	"a path without end":   {50, func(c net.Conn) error { return endless(c, "GET /") }},
	"a body without end": {50, func(c net.Conn) error {
		return endless(c, "POST /api/v1/recordings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000000\r\n\r\n")
	}},
	"an offer without end": {50, func(c net.Conn) error {
		return endless(c, "POST /raw/whep HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sdp\r\nContent-Length: 100000000000\r\n\r\n")
	}},
	"answers that nobody takes": {50, func(c net.Conn) error {
		_, err := io.WriteString(c, strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 100))
		return err
	}},
}

// endless writes until the connection is closed.
func endless(c net.Conn, head string) error {
	_, err := io.WriteString(c, head)
	for text := bytes.Repeat([]byte("x"), 1<<16); err == nil; {
		_, err = c.Write(text)
	}
	return err
}
