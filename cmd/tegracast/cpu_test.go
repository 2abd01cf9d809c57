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

// BenchmarkSlicesCPU measures what slices cost: the processor time of the whole process a delivered frame by slices over that by frames, the
// model included; and the same without what the camera alone takes, model and capture. They take turns. The receiver drops
// every packet in the kernel, and costs nothing. Nothing is checked.
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

// dropAll opens a socket whose filter lets nothing through.
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
		_ = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 1) // else the kernel would cut what leaves as one
		_ = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	})
	if err != nil {
		b.Fatal(err)
	}
}

// cpuPerFrame runs the program for five seconds. file is what it writes when it runs, if anything.
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
