// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// greys is the number of grey steps, from black to white, in a file of TestColoursOfFiles.
const greys = 8

// greyFile writes a YUV4MPEG2 file of one frame with vertical bars of grey.
func greyFile(t *testing.T, chroma, tags string, black, white int) string {
	t.Helper()
	const width, height = 128, 96
	b := fmt.Appendf(nil, "YUV4MPEG2 W%d H%d F10:1 Ip C%s%s\nFRAME\n", width, height, chroma, tags)
	for range height {
		for x := range width {
			b = append(b, byte(black+(white-black)*(x*greys/width)/(greys-1)))
		}
	}
	colour := 2 * width / 2 * height / 2
	if chroma == "422" {
		colour *= 2
	}
	path := filepath.Join(t.TempDir(), "grey.y4m")
	if err := os.WriteFile(path, append(b, bytes.Repeat([]byte{128}, colour)...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestColoursOfFiles checks the range of each kind of YUV4MPEG2 file in each payload that can carry it: ffmpeg and
// GStreamer must decode the grey steps as they are meant, and the SDP of raw video must name the range.
func TestColoursOfFiles(t *testing.T) {
	programtest.NotShort(t)
	files := map[string]struct {
		chroma, tags string
		black, white int
		payloads     string
	}{
		"ffmpeg's":  {"420jpeg", " XYSCSS=420JPEG", 16, 235, "h264"},
		"limited":   {"420mpeg2", " XCOLORRANGE=LIMITED", 16, 235, "h264"},
		"full":      {"420jpeg", " XCOLORRANGE=FULL", 0, 255, "h264 jpeg"},
		"422":       {"422", "", 16, 235, "raw"},
		"422, full": {"422", " XCOLORRANGE=FULL", 0, 255, "raw"},
	}
	for name, file := range files {
		path := greyFile(t, file.chroma, file.tags, file.black, file.white)
		for payload := range strings.FieldsSeq(file.payloads) {
			t.Run(name+"/"+payload, func(t *testing.T) {
				t.Parallel()
				showsGreys(t, path, payload, file.white == 255)
			})
		}
	}
}

// showsGreys streams a file and lets peers decode it.
func showsGreys(t *testing.T, path, payload string, full bool) {
	dir := t.TempDir()
	p := rtptest.EvenPorts(t, 2)
	cfg := programtest.Write(t, "colours.yaml", fmt.Sprintf(`
memory: host
web: {listen: none}
rtsp: {listen: none}
sources: [{name: file, file: {path: %q}}]
outputs: [{name: out, from: file, rtp: {payload: %s, destinations: ["127.0.0.1:%d", "127.0.0.1:%d"]}}]
`, path, payload, p[0], p[1]))
	serve := programtest.StartProgram(t, "serve", "--config", cfg, "--sdp-dir", dir)
	defer serve.Stop(t)
	sdp, second := filepath.Join(dir, "out.sdp"), filepath.Join(dir, "second.sdp")
	programtest.Await(t, sdp)
	if payload == "raw" { // ffmpeg and GStreamer do not read RANGE
		text, err := os.ReadFile(sdp)
		if want := map[bool]string{true: "RANGE=FULL", false: "RANGE=NARROW"}[full]; err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v\n%s\nwant %s", err, text, want)
		}
		return
	}
	retarget(t, sdp, second, p[0], p[1])
	decode := map[string]string{"h264": "rtph264depay ! h264parse ! openh264dec", "jpeg": "rtpjpegdepay ! jpegdec"}[payload]
	outs := map[string]*programtest.Process{
		"ffmpeg": ffmpeg(t, sdp, "3", "rgb24", filepath.Join(dir, "ffmpeg")),
		"gst":    gstreamer(t, second, decode+" ! videoconvert ! video/x-raw,format=RGB", "4", filepath.Join(dir, "gst")),
	}
	for name, peer := range outs {
		peer.Need(t, time.Minute)
		picture := split(t, filepath.Join(dir, name), 128*96*3)
		if len(picture) == 0 {
			t.Errorf("%s: no picture", name)
			continue
		}
		last := picture[len(picture)-1]
		for i := range greys {
			at, want := 3*(128*48+i*128/greys+8), i*255/(greys-1)
			for c := range 3 {
				if got := int(last[at+c]); got < want-3 || got > want+3 {
					t.Errorf("%s: step %d of grey is %v, want %d", name, i, last[at:at+3], want)
					break
				}
			}
		}
	}
}
