// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const h264YAML = `
memory: host
web: {listen: none}
sources: [{name: camera, model: {width: %d, height: %d, rate: 25}}]
isp: [{name: isp, white_balance: {red: 1.5, green: 1.0, blue: 1.1}}]
outputs:
  - name: h264
    rtp: {payload: h264, bitrate: 4000, checksum: true, destinations: ["127.0.0.1:%d", "127.0.0.1:%d", "127.0.0.1:%d"]}
`

// ffmpeg and GStreamer receive H.264 by its SDP file. Each frame, in order, must be the isp's picture at 35 dB or better.
// tegracast probe must get the units that were sent.
func TestPeersH264(t *testing.T) { programtest.Quiet(t, peersReceiveH264) }

func peersReceiveH264(t *testing.T) error {
	// The picture repeats after 240 frames. The size is not a multiple of the block size.
	const width, height, frames = 480, 270, 230
	luma := pictures(t, width, height, frames, picture{pipeline.NV12, 1})[0] // with the colours of H.264
	dir := t.TempDir()
	p := rtptest.EvenPorts(t, 3)
	cfg := programtest.Write(t, "h264.yaml", fmt.Sprintf(h264YAML, width, height, p[0], p[1], p[2]))
	serve := programtest.StartProgram(t, "serve", "--config", cfg, "--sdp-dir", dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	programtest.Await(t, file("h264.sdp"))
	retarget(t, file("h264.sdp"), file("gst.sdp"), p[0], p[1])
	retarget(t, file("h264.sdp"), file("probe.sdp"), p[0], p[2])
	probe := programtest.StartProgram(t, "probe", "--sdp", file("probe.sdp"), "--duration", "4s", "--json", "--save", file("units"))
	peers := []*programtest.Process{
		ffmpeg(t, file("h264.sdp"), "60", "yuv420p", file("ffmpeg")),
		gstreamer(t, file("gst.sdp"), "rtph264depay ! h264parse ! openh264dec ! video/x-raw,format=I420", "61", file("gst")),
		probe,
	}
	for _, peer := range peers {
		peer.Need(t, time.Minute)
	}
	serve.Stop(t)
	var errs []error
	for _, name := range []string{"ffmpeg", "gst"} {
		errs = append(errs, checkH264(t, name, split(t, file(name), width*height*3/2), luma, width*height))
	}
	st := probe.Verdict(t)
	units, err := os.ReadFile(file("units"))
	if err != nil {
		t.Fatal(err)
	}
	if keys := bytes.Count(units, []byte("\x00\x00\x00\x01\x67")); !st.Clean || st.Frames < 90 || st.Matched < st.Frames-1 || keys < 1 || keys > 3 {
		errs = append(errs, fmt.Errorf("probe: %d key frames, %+v", keys, st))
	}
	return errors.Join(errs...)
}

// checkH264 finds every decoded frame among those that the sensor has made, in sequence. Frames before the first key
// frame cannot be decoded.
func checkH264(t *testing.T, name string, got, made [][]byte, luma int) (err error) {
	t.Helper()
	if len(got) < 60 {
		return fmt.Errorf("%s: %d frames, want 60", name, len(got))
	}
	first, worst := 0, 1000.0
	for n := range made {
		if psnr(got[1][:luma], made[n][:luma]) > psnr(got[1][:luma], made[first][:luma]) {
			first = n
		}
	}
	for i, g := range got[1:] {
		n := first + i
		if n >= len(made) {
			return fmt.Errorf("%s: frame %d would be sensor frame %d", name, i, n)
		}
		v := psnr(g[:luma], made[n][:luma])
		if worst = min(worst, v); v < 35 {
			err = fmt.Errorf("%s: frame %d: luma PSNR %.1f dB against sensor frame %d, want more than 35", name, i, v, n)
		}
	}
	t.Logf("%s: %d frames from sensor frame %d on, worst luma PSNR %.1f dB", name, len(got), first, worst)
	return err
}
