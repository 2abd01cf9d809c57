// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// peerFrames is the number of frames requested from each peer.
const peerFrames = 10

// A peer is another implementation that writes the frames of a stream described by an SDP file to another file, and
// ends on its own.
type peer struct {
	program string
	debian  string   // packages that contain it
	heard   []string // log messages about RTCP
	args    func(sdp, out string, m rtp.Media) []string
}

func ffmpeg(pixels string) peer {
	return peer{"ffmpeg", "ffmpeg", nil, func(sdp, out string, _ rtp.Media) []string {
		return []string{
			"-hide_banner", "-loglevel", "warning", "-protocol_whitelist", "file,udp,rtp", "-buffer_size", "4194304",
			"-reorder_queue_size", "0", "-fflags", "nobuffer", "-fpsprobesize", "0", "-analyzeduration", "200000",
			"-i", sdp, "-fps_mode", "passthrough", "-frames:v", fmt.Sprint(peerFrames), "-f", "rawvideo", "-pix_fmt", pixels, "-y", out,
		}
	}}
}

// gstreamer uses the parameters of the SDP as caps, with or without rtpbin, which processes RTCP.
func gstreamer(rtpbin bool, caps string, chain ...string) peer {
	var heard []string
	if rtpbin {
		heard = []string{"got SR packet: SSRC 1234abcd", "received APP", "got SDES packet with 1 items"}
	}
	return peer{"gst-launch-1.0", rtptest.GStreamer, heard, func(_, out string, m rtp.Media) []string {
		source := []string{
			"udpsrc", "address=127.0.0.1", fmt.Sprintf("port=%d", m.Port), "buffer-size=4194304",
			"caps=application/x-rtp,media=video,clock-rate=90000," + caps,
		}
		tail := append(chain, "!", "identity", fmt.Sprintf("eos-after=%d", peerFrames+1), "!", "filesink", "location="+out)
		if !rtpbin {
			return slices.Concat([]string{"-q"}, source, []string{"!"}, tail)
		}
		return slices.Concat([]string{"-q", "rtpbin", "name=b", "latency=50"}, source, []string{"!", "b.recv_rtp_sink_0"},
			[]string{"udpsrc", "address=127.0.0.1", fmt.Sprintf("port=%d", m.RTCPPort), "!", "b.recv_rtcp_sink_0", "b.", "!"}, tail)
	}}
}

// play streams src to the peer until it has enough frames, and returns its output.
func (p peer) play(t *testing.T, c Config, src *rtptest.Source) []byte {
	t.Helper()
	if _, err := exec.LookPath(p.program); err != nil {
		t.Fatalf("%s is missing: apt-get install %s", p.program, p.debian)
	}
	c.Destinations, c.Checksum, c.Start = []string{fmt.Sprintf("127.0.0.1:%d", rtptest.EvenPorts(t, 1)[0])}, true, testStart()
	s := testSink(t, c, src.Format())
	text, err := s.SDP()
	if err != nil {
		t.Fatal(err)
	}
	if text, err = rtp.JoinSDP(text, resultsBeside(t)); err != nil { // the peer does not know this medium, and must ignore it
		t.Fatal(err)
	}
	dir := t.TempDir()
	sdp, out := filepath.Join(dir, "stream.sdp"), filepath.Join(dir, "out")
	if err := os.WriteFile(sdp, text, 0o644); err != nil {
		t.Fatal(err)
	}
	media, err := rtp.ParseSDP(text)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, p.program, p.args(sdp, out, media[0])...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Env = append(os.Environ(), "GST_DEBUG=rtpsession:5,rtpsource:5", "GST_DEBUG_NO_COLOR=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		err = cmd.Wait()
		cancel()
	}()
	close(src.Ready)
	rtptest.Run(t, ctx, src, s)
	<-ctx.Done()
	b, rerr := os.ReadFile(out)
	if rerr != nil || !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Fatalf("%s: %v, %v, %v\n%s", cmd, context.Cause(ctx), err, rerr, &log)
	}
	for _, want := range p.heard {
		if !bytes.Contains(log.Bytes(), []byte(want)) {
			t.Errorf("%s has not noted %q:\n%.4000s", p.program, want, &log)
		}
	}
	return b
}

// resultsBeside describes a stream of results that is not sent.
func resultsBeside(t *testing.T) []byte {
	t.Helper()
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(rtptest.EvenPorts(t, 1)[0]))
	b, err := rtp.Describe(rtp.Stream{Payload: rtp.Results}, rtptest.Format(t, pipeline.Grey, 16, 8, 30), rtp.Path{From: to.Addr(), To: to})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// planes10 returns a frame of UYVP in the layout of ffmpeg's yuv422p10le.
func planes10(f *pipeline.Frame) []byte {
	w, h := f.Format.Width, f.Format.Height
	out := make([]byte, 4*w*h)
	put := func(at int, v uint64) { binary.LittleEndian.PutUint16(out[2*at:], uint16(v&0x3ff)) }
	for y := range h {
		for x := 0; x < w; x += 2 {
			var v uint64
			for _, b := range f.Bytes[y*f.Format.Stride+x/2*5:][:5] {
				v = v<<8 | uint64(b)
			}
			put(w*h+y*w/2+x/2, v>>30)
			put(y*w+x, v>>20)
			put(w*h*3/2+y*w/2+x/2, v>>10)
			put(y*w+x+1, v)
		}
	}
	return out
}

func TestPeersReceiveRaw(t *testing.T) {
	caps := func(sampling, depth string) string {
		return "encoding-name=RAW,sampling=" + sampling + ",depth=(string)" + depth + ",width=(string)320,height=(string)240,colorimetry=BT709"
	}
	for _, format := range []struct {
		pixel    pipeline.PixelFormat
		sampling string
		depth    string
		ffmpeg   string                       // output format requested
		planes   func(*pipeline.Frame) []byte // converts a frame to that format; nil: no conversion
	}{
		{pipeline.UYVY, "YCbCr-4:2:2", "8", "uyvy422", nil},
		{pipeline.UYVP, "YCbCr-4:2:2", "10", "yuv422p10le", planes10},
		{pipeline.RGB24, "RGB", "8", "rgb24", nil},
	} {
		caps := caps(format.sampling, format.depth)
		for name, p := range map[string]peer{
			"ffmpeg": ffmpeg(format.ffmpeg), "udpsrc": gstreamer(false, caps, "rtpvrawdepay"), "rtpbin": gstreamer(true, caps, "rtpvrawdepay"),
		} {
			t.Run(format.pixel.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := rtptest.Format(t, format.pixel, 320, 240, 30)
				src := rtptest.NewSource(t, f, 0)
				got := p.play(t, Config{}, src)
				var want [][]byte
				for _, frame := range src.Fill {
					if name == "ffmpeg" && format.planes != nil {
						want = append(want, format.planes(frame))
					} else {
						want = append(want, frame.Bytes)
					}
				}
				size, right := len(want[0]), 0
				for n := 0; n+size <= len(got); n += size {
					if slices.ContainsFunc(want, func(w []byte) bool { return bytes.Equal(got[n:n+size], w) }) {
						right++
					}
				}
				// The first frame may have started before the peer listened.
				if all := len(got) / size; all < peerFrames || right < all-1 || len(got)%size != 0 {
					t.Errorf("%d bytes, %d frames, %d of them right", len(got), all, right)
				}
			})
		}
	}
}

func TestPeersReceiveJPEG(t *testing.T) {
	const w, h, sent = 320, 180, 184 // not a multiple of 8: peers see the height rounded up
	const caps = "encoding-name=rtp.JPEG,payload=26"
	for name, p := range map[string]peer{
		"ffmpeg": ffmpeg("yuvj420p"),
		"udpsrc": gstreamer(false, caps, "rtpjpegdepay", "!", "jpegdec"),
		"rtpbin": gstreamer(true, caps, "rtpjpegdepay", "!", "jpegdec"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := rtptest.Format(t, pipeline.I420, w, h, 30)
			src := rtptest.NewSource(t, f, 0)
			got := p.play(t, Config{Stream: rtp.Stream{Payload: rtp.JPEG}}, src)
			size := w * sent * 3 / 2
			right, worst := 0, 100.0
			for n := 0; n+size <= len(got); n += size {
				best := 0.0
				for _, want := range src.Fill {
					best = max(best, rtptest.PSNR(want.Bytes[:w*h], got[n:n+w*h]))
				}
				if worst = min(worst, best); best > 35 {
					right++
				}
			}
			if all := len(got) / size; all < peerFrames || right < all-1 || len(got)%size != 0 {
				t.Errorf("%d bytes, %d frames, %d of them above 35 dB, worst %.1f dB", len(got), all, right, worst)
			}
		})
	}
}
