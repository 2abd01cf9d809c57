// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// Times of the sensor in BenchmarkLatency.
const (
	benchExposure = time.Second / 60 / 2 // the default, at which the model computes least
	benchReadout  = 15 * time.Millisecond
	benchLines    = 1080
)

const latencyYAML = `
memory: %s
web: {listen: none}
sources:
  - name: camera
    model: {width: %d, height: %d, rate: 60, readout: 15ms}
isp: [{name: isp, device: %s}]
outputs:
  - {name: raw, latency: %s, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], capture_time: true, pacing: %s}}
`

// BenchmarkLatency measures the time from the sensor's first and last line to the first and last packet of a frame, with
// a receiver that shares no code with the sender. The kernel timestamps the packets (SO_TIMESTAMPNS, socket(7)), and
// abs-capture-time in them gives the start of the exposure, from which the sensor's line clock follows. Whole frames and
// slices take turns, through the isp on the CPU, and on a GPU if there is one. It checks nothing.
func BenchmarkLatency(b *testing.B) {
	devices := [][2]string{{"host", "cpu"}}
	if os.Getenv("TEGRACAST_GPU") != "" {
		devices = append(devices, [2]string{"cuda", "cuda"})
	}
	for round := range 3 {
		for _, device := range devices {
			for _, mode := range [][2]string{{"frame", "frame"}, {"frame", "burst"}, {"slice", "frame"}} {
				b.Run(fmt.Sprintf("%s-%s-%s-%d", device[1], mode[0], mode[1], round+1), func(b *testing.B) {
					for range b.N {
						measureLatency(b, device, mode[0], mode[1])
					}
				})
			}
		}
	}
}

func measureLatency(b *testing.B, device [2]string, latency, pacing string) {
	dir, port := b.TempDir(), rtptest.EvenPorts(b, 1)[0]
	conn := listenStamped(b, port, nil)
	text := fmt.Sprintf(latencyYAML, device[0], 1920, benchLines, device[1], latency, port, pacing)
	serve := programtest.StartProgram(b, "serve", "--config", programtest.Write(b, "c.yaml", text), "--sdp-dir", dir)
	programtest.Await(b, filepath.Join(dir, "raw.sdp"))
	var first, last []time.Duration
	packet, control, frame := make([]byte, 2000), make([]byte, 64), uint32(0)
	_ = conn.SetReadDeadline(time.Now().Add(6 * time.Second))
	for begun := time.Now(); time.Since(begun) < 5*time.Second; {
		n, oob, _, _, err := conn.ReadMsgUDP(packet, control)
		if err != nil {
			b.Fatal(err)
		}
		at, start, ok := stamps(packet[:n], control[:oob])
		if !ok || time.Since(begun) < time.Second { // without the start
			continue
		}
		lines := start.Add(benchExposure)
		if t := binary.BigEndian.Uint32(packet[4:]); t != frame {
			frame = t
			first = append(first, at.Sub(lines.Add(benchReadout/benchLines)))
		}
		if packet[1]>>7 == 1 {
			last = append(last, at.Sub(lines.Add(benchReadout)))
		}
	}
	serve.Stop(b)
	for name, list := range map[string][]time.Duration{"first": first, "last": last} {
		slices.Sort(list)
		for _, p := range []int{50, 99} {
			b.ReportMetric(float64(list[len(list)*p/100])/1e6, fmt.Sprintf("ms-%s-p%d", name, p))
		}
	}
	b.ReportMetric(float64(len(last)), "frames")
	b.ReportMetric(0, "ns/op")
}

// listenStamped opens a socket for which the kernel timestamps the packets that pass filter, or all.
func listenStamped(b *testing.B, port int, filter *unix.SockFprog) *net.UDPConn {
	b.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetReadBuffer(64 << 20)
	raw, err := conn.SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		if set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); set == nil && filter != nil {
			set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, filter)
		}
	})
	if err := errors.Join(err, set); err != nil {
		b.Fatal(err)
	}
	return conn
}

// stamps returns when the kernel received a packet, and the start of the exposure that the packet gives.
func stamps(packet, control []byte) (received, exposed time.Time, ok bool) {
	if received, ok = stamped(control); !ok || len(packet) < 28 {
		return received, exposed, false
	}
	return received, rtp.FromNTP(binary.BigEndian.Uint64(packet[17:])), true
}

// stamped returns when the kernel received a packet.
func stamped(control []byte) (at time.Time, ok bool) {
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(list) != 1 || len(list[0].Data) < 16 {
		return at, false
	}
	d := list[0].Data
	return time.Unix(int64(binary.NativeEndian.Uint64(d)), int64(binary.NativeEndian.Uint64(d[8:]))), true
}
