// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const loadConfig = `web: {listen: "127.0.0.1:%d", profile: true}
rtsp: {listen: "127.0.0.1:%d"}
sources: [{name: camera, model: {width: 160, height: 120, rate: 10}}]
isp: [{name: isp}]
outputs:
  - {name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], checksum: true}}
  - {name: live, rtp: {payload: h264, bitrate: 200}}
  - {name: lines, from: camera, results: {tcp: "127.0.0.1:%d"}}
  - {name: frames, share: {socket: %q}}
`

// A loaded is a serve process with loadConfig.
type loaded struct {
	*programtest.Process
	web, rtsp, lines, socket string // addresses
	sdp                      string // SDP file of the raw stream
	port                     int    // its destination port
}

func startLoaded(t *testing.T) loaded {
	t.Helper()
	ports, dir := rtptest.EvenPorts(t, 4), t.TempDir()
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	s := loaded{web: at(0), rtsp: at(1), lines: at(3), socket: filepath.Join(dir, "frames"), sdp: filepath.Join(dir, "raw.sdp"), port: ports[2]}
	config := programtest.Write(t, "config.yaml", fmt.Sprintf(loadConfig, ports[0], ports[1], ports[2], ports[3], s.socket))
	s.Process = programtest.StartProgram(t, "serve", "--config", config, "--sdp-dir", dir)
	programtest.Await(t, s.sdp)
	fetch(t, "http://"+s.web+"/readyz")
	return s
}

var cameraLost = regexp.MustCompile(`(?m)^tegracast_source_lost_frames_total\{source="camera"\} (\S+)$`)

// TestLoad runs 200 clients of the page, 100 RTSP readers, 50 WHEP viewers, some of which stall or vanish and return, and
// a flood at every UDP socket. The raw stream must lose nothing, and every checksum must be right. A second serve
// process without load shows whether the machine is too slow.
func TestLoad(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	programtest.Quiet(t, load)
}

const (
	loadPage, loadRTSP, loadWHEP = 200, 100, 50
	loadFor                      = 30 * time.Second
)

func load(t *testing.T) error {
	busy, idle := startLoaded(t), startLoaded(t)
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	var page, rtsp, whep atomic.Int64 // answers and packets
	began := time.Now()
	for i := range loadWHEP {
		clients.Go(func() { loadViewer(ctx, t, busy, i, &whep) })
	}
	for i := range loadRTSP {
		clients.Go(func() { loadReader(ctx, t, busy, i, &rtsp) })
	}
	for range loadPage {
		clients.Go(func() { loadPageClient(ctx, busy, &page) })
	}
	loadedUp(t, busy)
	t.Logf("all are there after %v", time.Since(began))
	flooded := programtest.UDP(t, busy.Process.Process.Pid)
	clients.Go(func() { loadFlood(ctx, flooded) })
	var probes [2]*programtest.Process
	for i, s := range []loaded{busy, idle} {
		probes[i] = programtest.StartProgram(t, "probe", s.sdp, "--duration", loadFor.String(), "--json")
	}
	var lost [2]uint64
	for i, p := range probes {
		p.Wait(t, loadFor+time.Minute)
		v := p.Verdict(t)
		if v.Mismatched > 0 || v.Matched == 0 {
			t.Errorf("serve %d: %d checksums are right, %d wrong", i, v.Matched, v.Mismatched)
		}
		lost[i] = v.Lost
	}
	var missed [2]float64
	for i, s := range []loaded{busy, idle} {
		_, text := fetch(t, "http://"+s.web+"/metrics")
		missed[i] = programtest.Found(t, cameraLost, text)
	}
	t.Logf("%d sockets flooded; %d answers of the page, %d packets by RTSP, %d by WebRTC; the serve lost %d packets and %v frames of the camera, the other %d and %v",
		len(flooded), page.Load(), rtsp.Load(), whep.Load(), lost[0], missed[0], lost[1], missed[1])
	if page.Load() == 0 || rtsp.Load() == 0 || whep.Load() == 0 {
		t.Error("clients got nothing")
	}
	switch {
	case lost[1] > 0 || missed[1] > 0:
		return fmt.Errorf("the machine is too slow: without clients %d packets and %v frames of the camera were lost", lost[1], missed[1])
	case lost[0] > 0 || missed[0] > 0:
		return fmt.Errorf("%d packets of the raw stream and %v frames of the camera were lost", lost[0], missed[0])
	}
	return nil
}

var readersBy = regexp.MustCompile(`"by":\s*"([^"]+)"`)

// loadedUp waits until most readers and viewers receive the stream. Some of them come and go.
func loadedUp(t *testing.T, s loaded) {
	t.Helper()
	var there map[string]int
	for begin := time.Now(); time.Since(begin) < 2*time.Minute; time.Sleep(time.Second) {
		there = map[string]int{}
		_, text := fetch(t, "http://"+s.web+"/api/v1/status")
		for _, m := range readersBy.FindAllStringSubmatch(text, -1) {
			there[m[1]]++
		}
		if there["RTSP over TCP"]+there["RTSP over UDP"] >= loadRTSP*8/10 && there["WebRTC"] >= loadWHEP*8/10 {
			return
		}
	}
	t.Fatalf("after two minutes there are %v", there)
}

// loadReader reads the stream. One in ten uses UDP, one in ten reads nothing, one in ten leaves after a second and
// returns.
func loadReader(ctx context.Context, t *testing.T, s loaded, i int, packets *atomic.Int64) {
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		transport := "RTP/AVP/TCP;unicast;interleaved=0-1"
		if i%10 == 1 {
			transport = fmt.Sprintf("RTP/AVP;unicast;client_port=%d-%d", 40000+2*i, 40001+2*i)
		}
		c, in, err := playRTSP("rtsp://"+s.rtsp+"/live", transport)
		if err != nil {
			if ctx.Err() == nil {
				t.Logf("reader %d: %v", i, err)
			}
			continue
		}
		stay := time.Hour
		if i%10 == 2 {
			stay = time.Second
		}
		until, stop := context.WithTimeout(ctx, stay)
		ended := context.AfterFunc(until, func() { _ = c.Close() })
		if i%10 == 3 {
			<-until.Done() // ends: the test ends
		}
		for b := make([]byte, 1<<16); ; packets.Add(1) {
			if _, err := in.Read(b); err != nil {
				break
			}
		}
		ended()
		stop()
		_ = c.Close()
	}
}

// loadViewer watches the stream. One in ten vanishes without notice after some seconds and returns.
func loadViewer(ctx context.Context, t *testing.T, s loaded, i int, packets *atomic.Int64) {
	for ctx.Err() == nil {
		limit, stop := context.WithTimeout(ctx, 2*clientLimit)
		peer, err := watchWHEP(limit, "http://"+s.web+"/live/whep", func() { packets.Add(1) })
		stop()
		if err != nil {
			if ctx.Err() == nil {
				t.Logf("viewer %d: %v", i, err)
			}
			continue
		}
		stay := time.Hour
		if i%10 == 2 {
			stay = 5 * time.Second
		}
		until, stop := context.WithTimeout(ctx, stay)
		<-until.Done() // ends: the test ends
		stop()
		_ = peer.Close()
	}
}

// loadPageClient requests the page's status repeatedly.
func loadPageClient(ctx context.Context, s loaded, answers *atomic.Int64) {
	client := http.Client{Transport: programtest.WithToken(&http.Transport{DisableKeepAlives: true}), Timeout: clientLimit}
	for ; ctx.Err() == nil; time.Sleep(2 * time.Second) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.web+"/api/v1/status", nil)
		if err != nil {
			return
		}
		if a, err := client.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, a.Body)
			_ = a.Body.Close()
			answers.Add(1)
		}
	}
}

// loadFlood sends 5,000 packets per second to the sockets.
func loadFlood(ctx context.Context, to []netip.AddrPort) {
	report, err := (&rtcp.ReceiverReport{SSRC: 9, Reports: []rtcp.ReceptionReport{{SSRC: 1}}}).Marshal()
	if err != nil || len(to) == 0 {
		return
	}
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	for i := 0; ctx.Err() == nil; i++ {
		_, _ = c.WriteToUDPAddrPort(report, to[i%len(to)])
		if i%50 == 49 {
			time.Sleep(10 * time.Millisecond)
		}
	}
}
