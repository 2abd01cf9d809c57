// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pionrtp "github.com/pion/rtp"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/report"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const resultsYAML = `
memory: host
web: { listen: none }
sources:
  - name: camera
    model: { width: 320, height: 240, rate: 30 }
isp:
  - name: isp
    statistics: true
outputs:
  - name: raw
    rtp: { payload: raw, destinations: ["127.0.0.1:%d"], checksum: true }
  - name: numbers
    rtp: { payload: results, destinations: ["127.0.0.1:%d"], session: raw }
  - name: lines
    results: { udp: ["127.0.0.1:%d"], tcp: "127.0.0.1:%d" }
`

// TestResults sends a frame's statistics by UDP, by TCP and by RTP beside the video, with the same timestamps.
func TestResults(t *testing.T) {
	dir, p := t.TempDir(), rtptest.EvenPorts(t, 4)
	listen := func(port int) *net.UDPConn {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetReadBuffer(1 << 20)
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		return c
	}
	video, numbers, lines := listen(p[0]), listen(p[1]), listen(p[2])
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "results.yaml", fmt.Sprintf(resultsYAML, p[0], p[1], p[2], p[3])), "--sdp-dir", dir)
	programtest.Await(t, filepath.Join(dir, "numbers.sdp"))
	sdp, err := os.ReadFile(filepath.Join(dir, "raw.sdp"))
	if err != nil || !strings.Contains(string(sdp), fmt.Sprintf("m=application %d RTP/AVP 97", p[1])) {
		t.Errorf("%v\n%s", err, sdp)
	}

	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p[3]))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	checkStatistics(t, "TCP", line)
	b := make([]byte, 1<<16)
	n, err := lines.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	checkStatistics(t, "UDP", b[:n])

	shown := map[uint32]bool{}
	for len(shown) < 30 {
		if n, err = video.Read(b); err != nil {
			t.Fatal(err)
		}
		var packet pionrtp.Packet
		if err := packet.Unmarshal(b[:n]); err != nil {
			t.Fatal(err)
		}
		shown[packet.Timestamp] = true
	}
	var text []byte
	for found := 0; found < 10; {
		if n, err = numbers.Read(b); err != nil {
			t.Fatal(err)
		}
		var packet pionrtp.Packet
		if err := packet.Unmarshal(b[:n]); err != nil {
			t.Fatal(err)
		}
		if text = append(text, packet.Payload[4:]...); !packet.Marker {
			continue
		}
		if shown[packet.Timestamp] {
			found++
			checkStatistics(t, "RTP", text)
		}
		text = nil
	}
	serve.Stop(t)
	if n := books(t, serve.Out.String()); len(n) != 3 {
		t.Errorf("summary:\n%s", serve.Out.String())
	}
}

func checkStatistics(t *testing.T, by string, line []byte) {
	t.Helper()
	var r report.Report
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatalf("%s: %v: %q", by, err, line)
	}
	if len(r.Results) != 1 || r.Results[0].Stage != "isp" || len(r.Results[0].Bins) != 256 || r.Results[0].Numbers["mean_green"] < .05 || time.Since(r.Captured) > time.Minute {
		t.Errorf("%s: %.300q", by, line)
	}
}
