// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const peersYAML = `
memory: host
sources:
  - name: camera
    model: { width: %d, height: %d, rate: 10 }
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

// ffmpeg and GStreamer receive both streams by their SDP files. The raw frames must equal the isp's to the byte, and the
// JPEGs its pictures at 35 dB or better.
func TestPeers(t *testing.T) {
	programtest.NotShort(t)
	programtest.Quiet(t, peersReceive)
}

func peersReceive(t *testing.T) error {
	// The picture repeats after 240 frames. GStreamer's sockets hold a hundred packets. A frame has fewer, and may be
	// late by up to a period without loss.
	const width, height, frames = 256, 144, 230
	made := pictures(t, width, height, frames, picture{pipeline.UYVY, 1}, picture{pipeline.I420, 2})
	dir := t.TempDir()
	p := rtptest.EvenPorts(t, 4)
	cfg := programtest.Write(t, "peers.yaml", fmt.Sprintf(peersYAML, width, height, p[0], p[1], p[2], p[3]))
	serve := programtest.StartProgram(t, "serve", "--config", cfg, "--sdp-dir", dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	programtest.Await(t, file("raw.sdp"))
	programtest.Await(t, file("jpeg.sdp"))
	retarget(t, file("raw.sdp"), file("raw-gst.sdp"), p[0], p[1])
	retarget(t, file("jpeg.sdp"), file("jpeg-gst.sdp"), p[2], p[3])

	peers := []*programtest.Process{
		ffmpeg(t, file("raw.sdp"), "40", "uyvy422", file("raw-ffmpeg")),
		gstreamer(t, file("raw-gst.sdp"), "rtpvrawdepay", "41", file("raw-gst")),
		ffmpeg(t, file("jpeg.sdp"), "12", "yuvj420p", file("jpeg-ffmpeg")),
		gstreamer(t, file("jpeg-gst.sdp"), "rtpjpegdepay ! jpegdec ! video/x-raw,format=I420", "13", file("jpeg-gst")),
	}
	uyvy, i420 := made[0], made[1]
	for _, peer := range peers {
		peer.Need(t, time.Minute)
	}
	serve.Stop(t)
	var errs []error
	for _, name := range []string{"raw-ffmpeg", "raw-gst"} {
		errs = append(errs, checkRaw(t, name, split(t, file(name), len(uyvy[0])), uyvy, 40))
	}
	for _, name := range []string{"jpeg-ffmpeg", "jpeg-gst"} {
		// RFC 2435 §3.1.6 counts the height in blocks of 8: receivers see lines that are not in the picture.
		const received = (height/2 + 7) / 8 * 8
		errs = append(errs, checkJPEG(t, name, split(t, file(name), width/2*received*3/2), i420, width/2*height/2))
	}
	return errors.Join(errs...)
}

// ffmpeg receives n frames of a stream.
func ffmpeg(t *testing.T, sdp, n, pixels, out string) *programtest.Process {
	return programtest.Start(t, "ffmpeg", "-v", "error", "-nostdin", "-protocol_whitelist", "file,udp,rtp", "-buffer_size", "4194304", "-i", sdp,
		"-frames:v", n, "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", pixels, out)
}

// gstreamer receives n-1 frames.
func gstreamer(t *testing.T, sdp, depay, n, out string) *programtest.Process {
	return programtest.Start(t, "gst-launch-1.0", strings.Fields(fmt.Sprintf(
		"-q filesrc location=%s ! sdpdemux latency=0 ! application/x-rtp,media=video ! %s ! identity eos-after=%s ! filesink location=%s",
		sdp, depay, n, out))...)
}

const deepYAML = `
memory: host
sources:
  - name: camera
    model: { width: %d, height: %d, rate: 8 }
isp:
  - name: isp
    white_balance: { red: 1.5, green: 1.0, blue: 1.1 }
outputs:
  - name: uyvp
    rtp: { payload: raw, pixels: uyvp, destinations: ["127.0.0.1:%d", "127.0.0.1:%d"] }
  - name: rgb24
    rtp: { payload: raw, pixels: rgb24, destinations: ["127.0.0.1:%d", "127.0.0.1:%d"] }
`

// ffmpeg and GStreamer receive 10-bit 4:2:2 and R'G'B', and get exactly the isp's bytes.
func TestPeersDeep(t *testing.T) { programtest.Quiet(t, peersReceiveDeep) }

func peersReceiveDeep(t *testing.T) error {
	const width, height, frames = 320, 120, 160 // few packets a second: GStreamer's sockets hold a hundred
	made := pictures(t, width, height, frames, picture{pipeline.UYVP, 1}, picture{pipeline.RGB24, 1})
	dir := t.TempDir()
	p := rtptest.EvenPorts(t, 4)
	cfg := programtest.Write(t, "deep.yaml", fmt.Sprintf(deepYAML, width, height, p[0], p[1], p[2], p[3]))
	serve := programtest.StartProgram(t, "serve", "--config", cfg, "--sdp-dir", dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	programtest.Await(t, file("uyvp.sdp"))
	programtest.Await(t, file("rgb24.sdp"))
	retarget(t, file("uyvp.sdp"), file("uyvp-gst.sdp"), p[0], p[1])
	retarget(t, file("rgb24.sdp"), file("rgb24-gst.sdp"), p[2], p[3])
	peers := []*programtest.Process{
		ffmpeg(t, file("uyvp.sdp"), "20", "yuv422p10le", file("uyvp-ffmpeg")),
		gstreamer(t, file("uyvp-gst.sdp"), "rtpvrawdepay ! video/x-raw,format=UYVP", "21", file("uyvp-gst")),
		ffmpeg(t, file("rgb24.sdp"), "20", "rgb24", file("rgb24-ffmpeg")),
		gstreamer(t, file("rgb24-gst.sdp"), "rtpvrawdepay ! video/x-raw,format=RGB", "21", file("rgb24-gst")),
	}
	var planes [][]byte
	for _, f := range made[0] {
		planes = append(planes, planes10(f, width, height))
	}
	for _, peer := range peers {
		peer.Need(t, time.Minute)
	}
	serve.Stop(t)
	var errs []error
	for name, want := range map[string][][]byte{"uyvp-ffmpeg": planes, "uyvp-gst": made[0], "rgb24-ffmpeg": made[1], "rgb24-gst": made[1]} {
		errs = append(errs, checkRaw(t, name, split(t, file(name), len(want[0])), want, 20))
	}
	return errors.Join(errs...)
}

// planes10 converts a frame of RFC 4175's 10-bit pixel groups to ffmpeg's yuv422p10le.
func planes10(f []byte, width, height int) []byte {
	var y, cb, cr []byte
	sample := func(to []byte, v uint64) []byte { return binary.LittleEndian.AppendUint16(to, uint16(v&0x3ff)) }
	for ; len(f) >= 5; f = f[5:] {
		group := uint64(f[0])<<32 | uint64(binary.BigEndian.Uint32(f[1:]))
		cb, cr = sample(cb, group>>30), sample(cr, group>>10)
		y = sample(sample(y, group>>20), group)
	}
	return slices.Concat(y[:2*width*height], cb, cr)
}

// retarget writes an SDP file with another port.
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

// checkRaw finds every received frame among those that the sensor has made, in order. The first one may have begun before
// the peer listened. A lost packet makes a frame wrong, but if no frame is right, that is not a loss.
func checkRaw(t *testing.T, name string, got, made [][]byte, least int) (err error) {
	t.Helper()
	if len(got) < least {
		err = fmt.Errorf("%s: %d frames, want %d", name, len(got), least)
	}
	next, right := 0, 0
	for i, g := range got {
		n := next
		for n < len(made) && !bytes.Equal(g, made[n]) {
			n++
		}
		switch {
		case n < len(made):
			next = n + 1
			right++
		case i > 0:
			err = fmt.Errorf("%s: frame %d is not the isp's picture of any sensor frame after %d", name, i, next-1)
		}
	}
	t.Logf("%s: %d frames, %d right, the last is sensor frame %d", name, len(got), right, next-1)
	if len(got) > 1 && right == 0 {
		t.Error(err)
	}
	return err
}

// checkJPEG is like checkRaw, for pictures that are only similar.
func checkJPEG(t *testing.T, name string, got, made [][]byte, luma int) (err error) {
	t.Helper()
	if len(got) < 12 {
		err = fmt.Errorf("%s: %d frames, want 12", name, len(got))
	}
	next, worst, top := 0, 1000.0, 0.0
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
		worst, top = min(worst, best), max(top, best)
	}
	if len(got) > 1 && top < 35 {
		t.Error(err)
	}
	t.Logf("%s: %d frames, worst luma PSNR %.1f dB", name, len(got), worst)
	return err
}
