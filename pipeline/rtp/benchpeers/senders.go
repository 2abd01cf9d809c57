// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed c/baseline.c
var baseline []byte

// sender is a program that sends frames to there:port.
type sender struct {
	name string
	peer bool // not a sender of this project
	args func(work string, frames, rate int) []string
	only string // names of the paths that it is measured on, separated by spaces
	many int    // factor for the number of frames, for faster senders
}

// senders returns the senders in the order of the table.
func senders() []sender {
	return []sender{
		{"GStreamer rtpvrawpay ! udpsink", true, gstreamer, "S U D 60", 1},
		{"ffmpeg rawvideo", true, ffmpeg, "S U D 60", 1},
		{"Go, pion/rtp, a write a packet", true, self("pion", 1), "S U D 60", 1},
		{"C, gather, 16 segments", true, c("gather", 16), "S U D S1 U1", 4},
		{"C, gather, 50 segments", true, c("gather", 50), "S U S1 U1", 4},
		{"C, gather, 50, huge pages", true, c("gather", 50, "huge"), "S U S1 U1", 4},
		{"C, packet-ready, 50 segments", true, c("ready", 50), "S U S1 U1", 4},
		{"C, packet-ready, 50, huge pages", true, c("ready", 50, "huge"), "S U S1 U1", 4},
		{"C, packet-ready, 50, zero-copy", true, c("zerocopy", 50), "U U1", 16},
		{"tegracast, sendmsg", false, self("single", 16), "S D", 1},
		{"tegracast, sendmmsg", false, self("messages", 16), "S U D 60", 1},
		{"tegracast, gather, 16 segments", false, self("segments", 16), "S U D 60 S1 U1", 4},
		{"tegracast, gather, 50 segments", false, self("segments", 50), "S U D 60 S1 U1", 4},
		{"tegracast, gather, 16 segments, paced over the frame", false, self("paced", 16), "60", 1},
		{"tegracast, packet-ready, 50 segments", false, self("ready", 50), "S U D S1 U1", 4},
		{"tegracast, packet-ready, 50, zero-copy", false, self("zerocopy", 50), "S U S1 U1", 16},
		{"tegracast, gather, two streams", false, self("two", 16), "S S1", 1},
		{"tegracast, gather, eight destinations", false, self("eight", 16), "S S1", 1},
		{"tegracast, gather, multicast", false, self("group", 16), "S S1", 4},
	}
}

func (s sender) on(p path) bool {
	return slices.Contains(strings.Fields(s.only), p.name)
}

func gstreamer(_ string, frames, rate int) []string {
	sync := "sync=false"
	if rate > 0 {
		sync = "sync=true"
	}
	return strings.Fields(fmt.Sprintf("gst-launch-1.0 -q videotestsrc num-buffers=1 ! video/x-raw,format=UYVY,width=%d,height=%d,framerate=60/1 ! "+
		"imagefreeze num-buffers=%d ! rtpvrawpay ! udpsink host=%s port=%d buffer-size=8388608 %s", width, height, frames, there, port, sync))
}

func ffmpeg(work string, frames, rate int) []string {
	pace := ""
	if rate > 0 {
		pace = "-re"
	}
	return strings.Fields(fmt.Sprintf("ffmpeg -v error -nostdin %s -stream_loop -1 -f rawvideo -pix_fmt uyvy422 -video_size %dx%d -framerate 60 -i %s "+
		"-frames:v %d -c:v copy -f rtp rtp://%s:%d?buffer_size=8388608", pace, width, height, filepath.Join(work, "frame"), frames, there, port))
}

func c(mode string, segments int, more ...string) func(string, int, int) []string {
	return func(work string, frames, _ int) []string {
		return append([]string{filepath.Join(work, "baseline"), mode, strconv.Itoa(segments), strconv.Itoa(frames), there, strconv.Itoa(port)}, more...)
	}
}

func self(mode string, segments int) func(string, int, int) []string {
	return func(_ string, frames, rate int) []string {
		return []string{"/proc/self/exe", "send", mode, strconv.Itoa(segments), strconv.Itoa(frames), strconv.Itoa(rate)}
	}
}

// prepare writes the frame that ffmpeg reads, compiles the C program, and checks that the peers are installed.
func prepare(ctx context.Context, work string) error {
	for program, pkg := range map[string]string{
		"gst-launch-1.0": "gstreamer1.0-tools", "ffmpeg": "ffmpeg", "gcc": "gcc", "ethtool": "ethtool", "ip": "iproute2", "nsenter": "util-linux", "taskset": "util-linux",
	} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is missing: apt-get install --no-install-recommends %s", program, pkg)
		}
	}
	source := filepath.Join(work, "baseline.c")
	if err := os.WriteFile(source, baseline, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "frame"), make([]byte, 2*width*height), 0o600); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "gcc", "-O2", "-Wall", "-Werror", "-o", filepath.Join(work, "baseline"), source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("baseline.c: %w: %s", err, out)
	}
	return nil
}
