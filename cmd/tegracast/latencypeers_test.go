// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// markers passes only packets that end a frame, so that the receiver costs almost nothing (socket(7), SO_ATTACH_FILTER;
// the data begin with the UDP header).
var markers = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 9},
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jf: 1, K: 0x80},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	{Code: unix.BPF_RET | unix.BPF_K},
}

// Parameters of each measurement. The first second does not count.
const (
	peerTime  = 6 * time.Second
	peerRate  = 60
	peerLines = 8 // lines of a frame that are written together, as the model camera reads them out
)

// BenchmarkLatencyPeers measures the time from the last line of a frame to its last packet, as timestamped by the kernel
// on the loopback: for GStreamer and ffmpeg, to which the lines of a frame are written through a pipe over 15 ms of its
// period, and for the program with slices, paced and in bursts, whose camera has the same readout and which also makes
// the picture. They take turns. It checks nothing. The peers' options are the best that were found: a queue lets
// GStreamer read the pipe in a thread of its own, which reduces the latency by a factor of 5; no option was found that
// stops ffmpeg from holding a frame until the next one arrives.
func BenchmarkLatencyPeers(b *testing.B) {
	for _, size := range [][2]int{{1920, 1080}, {960, 540}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			for range b.N {
				comparePeers(b, size[0], size[1])
			}
		})
	}
}

func comparePeers(b *testing.B, width, height int) {
	const rounds = 3
	gst := func(port int) []string {
		return strings.Fields(fmt.Sprintf("gst-launch-1.0 -q fdsrc fd=0 blocksize=65536 ! queue max-size-buffers=0 max-size-bytes=0 ! "+
			"rawvideoparse format=uyvy width=%d height=%d framerate=%d/1 ! "+
			"rtpvrawpay ! udpsink host=127.0.0.1 port=%d sync=false async=false buffer-size=8388608", width, height, peerRate, port))
	}
	ffmpeg := func(port int) []string {
		return strings.Fields(fmt.Sprintf("ffmpeg -v error -fflags nobuffer -probesize 32 -analyzeduration 0 -f rawvideo -pix_fmt uyvy422 -video_size %dx%d "+
			"-framerate %d -i pipe:0 -c:v copy -flush_packets 1 -f rtp rtp://127.0.0.1:%d?buffer_size=8388608", width, height, peerRate, port))
	}
	senders := []struct {
		name    string
		measure func() peerTimes
	}{
		{"slices", func() peerTimes { return measureSlices(b, width, height, "frame") }},
		{"burst", func() peerTimes { return measureSlices(b, width, height, "burst") }},
		{"gstreamer", func() peerTimes { return measurePeer(b, width, height, gst) }},
		{"ffmpeg", func() peerTimes { return measurePeer(b, width, height, ffmpeg) }},
	}
	p50, p99, notes := map[string][]float64{}, map[string][]float64{}, map[string]string{}
	for range rounds {
		for _, s := range senders {
			m := s.measure()
			p50[s.name], p99[s.name] = append(p50[s.name], m.at(50)), append(p99[s.name], m.at(99))
			notes[s.name] += fmt.Sprintf("; %d frames%s", len(m.list), m.note)
		}
	}
	for _, s := range senders {
		b.Logf("%s: p50 %.2f p99 %.2f ms%s", s.name, p50[s.name], p99[s.name], notes[s.name])
	}
	for _, peer := range []string{"gstreamer", "ffmpeg"} {
		for _, ours := range []string{"slices", "burst"} {
			b.Logf("%s by %s: p50 %s, p99 %s", peer, ours, ratios(p50[peer], p50[ours]), ratios(p99[peer], p99[ours]))
		}
	}
	b.ReportMetric(0, "ns/op")
}

// ratios returns the median and the spread of the rounds' ratios.
func ratios(a, by []float64) string {
	var list []float64
	for i := range a {
		list = append(list, a[i]/by[i])
	}
	slices.Sort(list)
	return fmt.Sprintf("%.2f (%.2f to %.2f)", list[len(list)/2], list[0], list[len(list)-1])
}

// peerTimes are the times from the last line to the last packet.
type peerTimes struct {
	list []time.Duration
	note string
}

// at returns a percentile in ms.
func (p *peerTimes) at(percent int) float64 {
	if len(p.list) == 0 {
		return 0
	}
	slices.Sort(p.list)
	return float64(p.list[len(p.list)*percent/100]) / 1e6
}

// listenMarkers passes each packet that ends a frame to show, with the kernel's timestamp, until the time is up.
func listenMarkers(b *testing.B, conn *net.UDPConn, show func(packet, control []byte)) {
	packet, control := make([]byte, 2000), make([]byte, 64)
	_ = conn.SetReadDeadline(time.Now().Add(peerTime))
	for {
		n, oob, _, _, err := conn.ReadMsgUDP(packet, control)
		if err != nil {
			return
		}
		show(packet[:n], control[:oob])
	}
}

func measureSlices(b *testing.B, width, height int, pacing string) (m peerTimes) {
	dir, port := b.TempDir(), rtptest.EvenPorts(b, 1)[0]
	conn := listenStamped(b, port, &unix.SockFprog{Len: uint16(len(markers)), Filter: &markers[0]})
	text := fmt.Sprintf(latencyYAML, "host", width, height, "cpu", "slice", port, pacing)
	serve := programtest.StartProgram(b, "serve", "--config", programtest.Write(b, "c.yaml", text), "--sdp-dir", dir)
	programtest.Await(b, filepath.Join(dir, "raw.sdp"))
	begun := time.Now()
	listenMarkers(b, conn, func(packet, control []byte) {
		if at, start, ok := stamps(packet, control); ok && time.Since(begun) > time.Second {
			m.list = append(m.list, at.Sub(start.Add(benchExposure+benchReadout)))
		}
	})
	serve.Stop(b)
	return m
}

// measurePeer writes frames to a program. Its n-th timestamp belongs to the n-th frame.
func measurePeer(b *testing.B, width, height int, command func(port int) []string) (m peerTimes) {
	port := rtptest.EvenPorts(b, 1)[0]
	conn := listenStamped(b, port, &unix.SockFprog{Len: uint16(len(markers)), Filter: &markers[0]})
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 1<<20); err != nil { // the maximum for a user
		b.Fatal(err)
	}
	c := exec.Command(command(port)[0], command(port)[1:]...)
	c.Stdin = r
	peer := programtest.StartCommand(b, c)
	_ = r.Close()
	var written, due []time.Time
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer w.Close()
		written, due = readOut(w, width, height)
	}()
	var received []time.Time
	frame := uint32(0)
	listenMarkers(b, conn, func(packet, control []byte) {
		at, ok := stamped(control)
		switch stamp := binary.BigEndian.Uint32(packet[4:]); {
		case !ok:
		case len(received) > 0 && stamp == frame: // ffmpeg sends several per frame
			received[len(received)-1] = at
		default:
			received, frame = append(received, at), stamp
		}
	})
	_ = peer.Process.Kill()
	<-done
	var late []time.Duration
	for i := peerRate; i < min(len(received), len(written)); i++ {
		m.list = append(m.list, received[i].Sub(written[i]))
		late = append(late, written[i].Sub(due[i]))
	}
	behind := peerTimes{list: late}
	m.note = fmt.Sprintf(" of %d, into the pipe %.2f/%.2f ms late", len(written)-peerRate, behind.at(50), behind.at(99))
	if said := strings.TrimSpace(peer.Err.String()); said != "" {
		m.note += "; it says: " + strings.ReplaceAll(said, "\n", " / ")
	}
	return m
}

// readOut writes frames line by line until the reader leaves. It returns when the last line of each was in the pipe, and
// when it was due.
func readOut(w *os.File, width, height int) (written, due []time.Time) {
	frame := make([]byte, 2*width*height)
	for i := range frame {
		frame[i] = byte(rand.Uint32())
	}
	begun := time.Now()
	for n := 0; time.Since(begun) < peerTime; n++ {
		start := begun.Add(time.Duration(n) * time.Second / peerRate)
		at := start
		for y := 0; y < height; y += peerLines {
			end := min(y+peerLines, height)
			at = start.Add(benchReadout * time.Duration(end) / time.Duration(height))
			time.Sleep(time.Until(at))
			if _, err := w.Write(frame[2*width*y : 2*width*end]); err != nil {
				return written, due
			}
		}
		written, due = append(written, time.Now()), append(due, at)
	}
	return written, due
}
