package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const peersYAML = `
memory: host
sources:
  - name: camera
    model: { width: %d, height: %d, rate: 25 }
isp:
  - name: isp
    white_balance: { red: 1.5, green: 1.0, blue: 1.1 }
outputs:
  - name: raw
    rtp: { payload: raw, destinations: ["127.0.0.1:%d", "127.0.0.1:%d"] }
  - name: jpeg
    scale: half
    rate: 5
    rtp: { payload: jpeg, quality: 90, destinations: ["127.0.0.1:%d", "127.0.0.1:%d"] }
`

// ffmpeg and GStreamer receive both streams from their SDP files: the raw frames are those of the isp to the byte, the
// JPEGs are the isp's pictures at 35 dB or better.
func TestPeers(t *testing.T) { quiet(t, peersReceive) }

func peersReceive(t *testing.T) error {
	const width, height, frames = 480, 272, 230 // after 240 frames the picture comes back
	dir := t.TempDir()
	p := ports(t, 4)
	cfg := write(t, "peers.yaml", fmt.Sprintf(peersYAML, width, height, p[0], p[1], p[2], p[3]))
	serve := startProgram(t, "serve", "--config", cfg, "--sdp-dir", dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	await(t, file("raw.sdp"))
	await(t, file("jpeg.sdp"))
	retarget(t, file("raw.sdp"), file("raw-gst.sdp"), p[0], p[1])
	retarget(t, file("jpeg.sdp"), file("jpeg-gst.sdp"), p[2], p[3])

	ffmpeg := func(sdp, n, pixels, out string) *process {
		return start(t, "ffmpeg", "-v", "error", "-nostdin", "-protocol_whitelist", "file,udp,rtp", "-i", file(sdp),
			"-frames:v", n, "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", pixels, file(out))
	}
	gst := func(sdp, depay, n, out string) *process {
		args := strings.Fields(fmt.Sprintf("-q filesrc location=%s ! sdpdemux latency=0 ! application/x-rtp,media=video ! %s ! identity eos-after=%s ! filesink location=%s",
			file(sdp), depay, n, file(out)))
		return start(t, "gst-launch-1.0", args...)
	}
	peers := []*process{
		ffmpeg("raw.sdp", "40", "uyvy422", "raw-ffmpeg"),
		gst("raw-gst.sdp", "rtpvrawdepay", "41", "raw-gst"),
		ffmpeg("jpeg.sdp", "12", "yuvj420p", "jpeg-ffmpeg"),
		gst("jpeg-gst.sdp", "rtpjpegdepay ! jpegdec ! video/x-raw,format=I420", "13", "jpeg-gst"),
	}
	uyvy, i420 := pictures(t, width, height, frames)
	for _, peer := range peers {
		peer.need(t, 40*time.Second)
	}
	serve.stop(t)
	var errs []error
	for _, name := range []string{"raw-ffmpeg", "raw-gst"} {
		errs = append(errs, checkRaw(t, name, split(t, file(name), len(uyvy[0])), uyvy))
	}
	for _, name := range []string{"jpeg-ffmpeg", "jpeg-gst"} {
		// RFC 2435 §3.1.6 counts the height in blocks of 8: receivers see lines that the picture does not have.
		const received = (height/2 + 7) / 8 * 8
		errs = append(errs, checkJPEG(t, name, split(t, file(name), width/2*received*3/2), i420, width/2*height/2))
	}
	return errors.Join(errs...)
}

// retarget writes an SDP file for another port.
func retarget(t *testing.T, from, to string, port, other int) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, fmt.Appendf(nil, "m=video %d ", port), fmt.Appendf(nil, "m=video %d ", other), 1)
	if err := os.WriteFile(to, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkRaw finds every received frame among those that the sensor has made, in order. The first one may have begun
// before the peer listened.
func checkRaw(t *testing.T, name string, got, made [][]byte) (err error) {
	t.Helper()
	if len(got) < 40 {
		err = fmt.Errorf("%s: %d frames, want 40", name, len(got))
	}
	next := 0
	for i, g := range got {
		n := next
		for n < len(made) && !bytes.Equal(g, made[n]) {
			n++
		}
		switch {
		case n < len(made):
			next = n + 1
		case i > 0:
			err = fmt.Errorf("%s: frame %d is not the isp's picture of any sensor frame after %d", name, i, next-1)
		}
	}
	t.Logf("%s: %d frames, the last is sensor frame %d", name, len(got), next-1)
	return err
}

func checkJPEG(t *testing.T, name string, got, made [][]byte, luma int) (err error) {
	t.Helper()
	if len(got) < 12 {
		err = fmt.Errorf("%s: %d frames, want 12", name, len(got))
	}
	next, worst := 0, 1000.0
	for i, g := range got {
		best, at := 0.0, 0
		for n := next; n < len(made); n++ {
			if v := psnr(g[:luma], made[n][:luma]); v > best {
				best, at = v, n
			}
		}
		if best < 35 && i > 0 {
			err = fmt.Errorf("%s: frame %d: luma PSNR %.1f dB against sensor frame %d, want more than 35", name, i, best, at)
		}
		next = at + 1
		worst = min(worst, best)
	}
	t.Logf("%s: %d frames, worst luma PSNR %.1f dB", name, len(got), worst)
	return err
}
