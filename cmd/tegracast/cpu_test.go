// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const cameraAloneYAML = `
web: {listen: none}
sources:
  - name: camera
    model: {width: 1920, height: 1080, rate: 60, readout: 15ms}
outputs:
  - {name: told, from: camera, results: {udp: ["127.0.0.1:%d"]}}
`

// BenchmarkSlicesCPU measures the cost of slices: the ratio of the whole process's CPU time per delivered frame with
// slices to that without, including the model, and the same ratio without the share of the camera alone (model and
// capture). The two take turns. The receiver drops every packet in the kernel at no cost. It checks nothing.
func BenchmarkSlicesCPU(b *testing.B) {
	const rounds = 5
	for range b.N {
		port := rtptest.EvenPorts(b, 1)[0]
		dropAll(b, port)
		config := func(latency string) string {
			return fmt.Sprintf(latencyYAML, "host", 1920, benchLines, "cpu", latency, port, "frame")
		}
		var camera, frame, slice, whole, alone []float64
		for i := range rounds {
			camera = append(camera, cpuPerFrame(b, fmt.Sprintf(cameraAloneYAML, port), ""))
			frame = append(frame, cpuPerFrame(b, config("frame"), "raw.sdp"))
			slice = append(slice, cpuPerFrame(b, config("slice"), "raw.sdp"))
			whole = append(whole, slice[i]/frame[i])
			alone = append(alone, (slice[i]-camera[i])/(frame[i]-camera[i]))
		}
		b.Logf("ms of processor time a frame: camera alone %.2f, frames %.2f, slices %.2f", camera, frame, slice)
		for name, list := range map[string][]float64{"x-whole": whole, "x-less-camera": alone} {
			slices.Sort(list)
			b.Logf("%s %.3f", name, list)
			b.ReportMetric(list[rounds/2], name)
		}
		b.ReportMetric(0, "ns/op")
	}
}

// dropAll opens a socket with a filter that drops everything.
func dropAll(b *testing.B, port int) {
	b.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	raw, err := conn.SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	err = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 1) // otherwise the kernel would split packets that are sent as one
		_ = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	})
	if err != nil {
		b.Fatal(err)
	}
}

// cpuPerFrame runs the program for five seconds. file is the file that it writes meanwhile, if any.
func cpuPerFrame(b *testing.B, config, file string) float64 {
	dir := b.TempDir()
	serve := programtest.StartProgram(b, "serve", "--config", programtest.Write(b, "c.yaml", config), "--sdp-dir", dir)
	if file != "" {
		programtest.Await(b, filepath.Join(dir, file))
	}
	time.Sleep(5 * time.Second)
	serve.Stop(b)
	m := regexp.MustCompile(`(?m)^(?:raw|told): captured \d+ = delivered (\d+)`).FindStringSubmatch(serve.Out.String())
	if m == nil {
		b.Fatalf("no output in the summary:\n%s", serve.Out.String())
	}
	frames, _ := strconv.Atoi(m[1])
	return (serve.ProcessState.UserTime() + serve.ProcessState.SystemTime()).Seconds() * 1000 / float64(max(frames, 1))
}
