// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// A peer is another implementation that reads a URL and writes the given number of frames to a file.
type peer struct {
	program, debian string
	args            func(url, transport, out string, frames int) []string
}

func ffmpeg(pixels string) peer {
	return peer{"ffmpeg", "ffmpeg", func(url, transport, out string, frames int) []string {
		return []string{
			"-hide_banner", "-loglevel", "warning", "-rtsp_transport", transport, "-buffer_size", "4194304", "-fflags", "nobuffer",
			"-fpsprobesize", "0", "-analyzeduration", "200000", "-i", url, "-fps_mode", "passthrough", "-frames:v", fmt.Sprint(frames),
			"-f", "rawvideo", "-pix_fmt", pixels, "-y", out,
		}
	}}
}

func gstreamer(chain string) peer {
	return peer{"gst-launch-1.0", rtptest.GStreamer, func(url, transport, out string, frames int) []string {
		return strings.Fields(fmt.Sprintf("-q rtspsrc location=%s protocols=%s latency=100 udp-buffer-size=4194304 ! %s ! identity eos-after=%d ! filesink location=%s",
			url, transport, chain, frames+1, out))
	}}
}

// read lets the peer read frames, and returns them.
func (p peer) read(t *testing.T, url, transport string, frames int) ([]byte, error) {
	t.Helper()
	if _, err := exec.LookPath(p.program); err != nil {
		t.Fatalf("%s is missing: apt-get install %s", p.program, p.debian)
	}
	out := filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute+time.Duration(frames)*time.Second/10)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program, p.args(url, transport, out, frames)...)
	log, err := cmd.CombinedOutput()
	b, rerr := os.ReadFile(out)
	if err != nil || rerr != nil {
		return nil, fmt.Errorf("%s: %w\n%.4000s", cmd, errors.Join(err, rerr), log)
	}
	return b, nil
}

// payload is a payload that peers read, with the output that is expected of them.
type payload struct {
	name   string
	config send.Config
	format pipeline.Format
	peers  map[string]peer
	size   int // of the output for a frame
	same   func(sent *pipeline.Frame, got []byte) bool
}

func payloads(t *testing.T) []payload {
	const w, h, padded = 320, 180, 184 // JPEG sizes are multiples of 8 for the peers
	return []payload{{
		name: "raw", config: send.Config{Stream: rtp.Stream{Checksum: true}}, format: rtptest.Format(t, pipeline.UYVY, w, h, 30), size: 2 * w * h,
		peers: map[string]peer{"ffmpeg": ffmpeg("uyvy422"), "gstreamer": gstreamer("rtpvrawdepay")},
		same:  func(sent *pipeline.Frame, got []byte) bool { return bytes.Equal(sent.Bytes, got) },
	}, {
		name: "jpeg", format: rtptest.Format(t, pipeline.I420, w, h, 30), size: w * padded * 3 / 2,
		config: send.Config{Stream: rtp.Stream{Payload: rtp.JPEG, Checksum: true}},
		peers:  map[string]peer{"ffmpeg": ffmpeg("yuvj420p"), "gstreamer": gstreamer("rtpjpegdepay ! jpegdec")},
		same:   func(sent *pipeline.Frame, got []byte) bool { return rtptest.PSNR(sent.Bytes[:w*h], got[:w*h]) > 35 },
	}}
}

// h264 is a payload whose decoded pictures only look the same.
func h264(t *testing.T) payload {
	const w, h = 320, 176
	f := rtptest.Format(t, pipeline.I420, w, h, 30)
	f.Color = pipeline.BT709Limited
	encoder, err := codec.NewH264(f, 2e6)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = encoder.Close() })
	return payload{
		name: "h264", format: f, config: send.Config{Stream: rtp.Stream{Payload: rtp.H264, H264: encoder}}, size: w * h * 3 / 2,
		peers: map[string]peer{"ffmpeg": ffmpeg("yuv420p"), "gstreamer": gstreamer("rtph264depay ! h264parse ! openh264dec")},
		same:  func(sent *pipeline.Frame, got []byte) bool { return rtptest.PSNR(sent.Bytes[:w*h], got[:w*h]) > 25 },
	}
}

// again repeats a read by a peer until all frames are right, at most three times. On a slow machine a peer may lose a
// datagram; but if it gets no frame right three times, there is a fault.
func again(t *testing.T, read func() (right int, err error)) error {
	t.Helper()
	none := 0
	err := rtptest.Tries(t, func() error {
		right, err := read()
		if right == 0 {
			none++
		}
		return err
	})
	if none == 3 {
		return errors.New("no frame was right in any try")
	}
	return err
}

// readByPeers lets all peers read frames of each payload, by UDP and TCP at the same time.
func readByPeers(t *testing.T, frames int) {
	for _, p := range append(payloads(t), h264(t)) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			src := rtptest.NewSource(t, p.format, 0)
			_, server := serve(t, Config{User: "me", Password: "a word"}, p.name, p.config, src)
			url := strings.Replace(server.URL(p.name), "rtsp://", "rtsp://me:a%20word@", 1)
			results := make(chan error, 2*len(p.peers))
			for name, reader := range p.peers {
				for _, transport := range []string{"udp", "tcp"} {
					go func() {
						results <- again(t, func() (int, error) {
							got, err := reader.read(t, url, transport, frames)
							if err != nil {
								return 0, err
							}
							all, good := rtptest.Right(got, p.size, func(b []byte) bool {
								return slices.ContainsFunc(src.Fill, func(f *pipeline.Frame) bool { return p.same(f, b) })
							})
							t.Logf("%s by %s: %d frames, %d right", name, transport, all, good)
							if all < frames || good < all || len(got)%p.size != 0 {
								return good, fmt.Errorf("%s by %s: %d bytes, %d frames, %d of them right", name, transport, len(got), all, good)
							}
							return good, nil
						})
					}()
				}
			}
			need(t, results)
		})
	}
}

// need waits for the results of all peers.
func need(t *testing.T, results <-chan error) {
	t.Helper()
	var errs []error
	for range cap(results) {
		errs = append(errs, <-results)
	}
	rtptest.Need(t, errs...)
}

// TestPeersRead reads raw video, JPEG and H.264 with ffmpeg and GStreamer by UDP and TCP for 5 s, with a password, and
// checks that all frames are right from the first one on.
func TestPeersRead(t *testing.T) {
	t.Parallel()
	readByPeers(t, 150)
}

// TestPeersReadAMinute is the same for a minute.
func TestPeersReadAMinute(t *testing.T) {
	long(t)
	readByPeers(t, 1800)
}

// withoutUDP is a shell script that waits for the interface y, and then runs its arguments where no UDP packet arrives.
const withoutUDP = `
echo ready
until ip link set y up; do sleep 0.05; done 2> /dev/null
ip address add 10.9.0.2/24 dev y
ip rule add pref 100 lookup local
ip rule del pref 0
ip rule add pref 10 ipproto udp blackhole
exec "$@"`

// TestChangeToTCP reads with ffmpeg where no UDP packet arrives, as behind a firewall. It then sends PAUSE, and sets the
// stream up over TCP on the same connection.
func TestChangeToTCP(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	if !rtptest.Apart(t) {
		return
	}
	p := payloads(t)[1]
	_, server := serve(t, Config{Listen: "10.9.0.1:0", User: "me", Password: "a word"}, p.name, p.config, rtptest.NewSource(t, p.format, 0))
	url := strings.Replace(server.URL(p.name), "rtsp://", "rtsp://me:a%20word@", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "unshare", "--net", "sh", "-ec", withoutUDP, "sh",
		"ffmpeg", "-hide_banner", "-loglevel", "warning", "-timeout", "4000000", "-i", url, "-frames:v", "10", "-f", "null", "-")
	var log bytes.Buffer
	c.Stderr = &log
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err, log.String())
	}
	rtptest.IP(t, "link", "set", "y", "netns", strconv.Itoa(c.Process.Pid))
	if err := c.Wait(); err != nil || !strings.Contains(log.String(), "retrying with TCP") {
		t.Errorf("%v\n%s", err, log.String())
	}
}
