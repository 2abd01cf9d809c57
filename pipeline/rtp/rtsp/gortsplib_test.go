// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtph264"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtpmjpeg"
	packets "github.com/pion/rtp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// depayloader returns a function that returns the frame that a packet completes, or nil. For JPEG and H.264 it uses
// gortsplib's decoders; gortsplib has none for raw video.
func depayloader(f format.Format) (func(*packets.Packet) ([]byte, error), error) {
	switch f := f.(type) {
	case *format.MJPEG:
		d, err := f.CreateDecoder()
		return func(p *packets.Packet) ([]byte, error) {
			b, err := d.Decode(p)
			if errors.Is(err, rtpmjpeg.ErrMorePacketsNeeded) {
				return nil, nil
			}
			return b, err
		}, err
	case *format.H264:
		d, err := f.CreateDecoder()
		return func(p *packets.Packet) (b []byte, err error) {
			units, err := d.Decode(p)
			if errors.Is(err, rtph264.ErrMorePacketsNeeded) {
				return nil, nil
			}
			for _, u := range units {
				b = append(append(b, 0, 0, 0, 1), u...)
			}
			return b, err
		}, err
	}
	var frame []byte
	return func(p *packets.Packet) ([]byte, error) { // RFC 4175 §4.3
		heads, more := p.Payload[2:], true
		data := heads
		for n := 0; more; n += 6 {
			more, data = heads[n+4]&0x80 != 0, heads[n+6:]
		}
		for ; len(data) > 0; heads = heads[6:] {
			n := int(binary.BigEndian.Uint16(heads))
			frame, data = append(frame, data[:n]...), data[n:]
		}
		if !p.Marker {
			return nil, nil
		}
		whole := frame
		frame = nil
		return whole, nil
	}, nil
}

// playByGortsplib returns the first frames that gortsplib's client gets from a URL.
func playByGortsplib(url string, protocol gortsplib.Protocol, frames int) (got [][]byte, err error) {
	u, err := base.ParseURL(url)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	end := func(err error) {
		select {
		case ended <- err:
		default:
		}
	}
	c := gortsplib.Client{
		Scheme: u.Scheme, Host: u.Host, Protocol: &protocol, UDPReadBufferSize: 4 << 20,
		OnPacketsLost: func(n uint64) { end(fmt.Errorf("%d packets are lost", n)) },
		OnDecodeError: end,
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	defer c.Close()
	d, _, err := c.Describe(u)
	if err != nil {
		return nil, err
	}
	media := d.Medias[0]
	decode, err := depayloader(media.Formats[0])
	if err != nil {
		return nil, err
	}
	if _, err := c.Setup(d.BaseURL, media, 0, 0); err != nil {
		return nil, err
	}
	c.OnPacketRTPAny(func(_ *description.Media, _ format.Format, p *packets.Packet) {
		b, err := decode(p)
		if err == nil && b != nil && len(got) < frames {
			got = append(got, b)
		}
		if err != nil || len(got) == frames {
			end(err)
		}
	})
	if _, err := c.Play(nil); err != nil {
		return nil, err
	}
	select {
	case err = <-ended:
	case <-time.After(time.Minute):
		err = errors.New("it gets nothing more")
	}
	c.Close() // waits for the callback, which writes got
	return got, err
}

var errWrong = errors.New("not as sent")

// decoded returns the pictures of JPEG or H.264 frames, decoded by ffmpeg, and raw video as it is.
func decoded(t *testing.T, codec string, frames [][]byte) ([]byte, error) {
	all := bytes.Join(frames, nil)
	reader, pixels := map[string]string{"jpeg": "mjpeg", "h264": "h264"}[codec], map[string]string{"jpeg": "yuvj420p", "h264": "yuv420p"}[codec]
	if reader == "" {
		return all, nil
	}
	c := exec.CommandContext(t.Context(), "ffmpeg", "-loglevel", "error", "-f", reader, "-i", "pipe:0", "-fps_mode", "passthrough",
		"-f", "rawvideo", "-pix_fmt", pixels, "pipe:1")
	c.Stdin, c.Stderr = bytes.NewReader(all), t.Output()
	return c.Output()
}

// TestGortsplibPlays plays raw video, JPEG and H.264 with gortsplib's client by UDP and TCP, with a password, and checks
// that all frames are right from the first one on.
func TestGortsplibPlays(t *testing.T) {
	t.Parallel()
	const frames = 60
	for _, p := range append(payloads(t), h264(t)) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			src := rtptest.NewSource(t, p.format, 0)
			_, server := serve(t, Config{User: "me", Password: "a word"}, p.name, p.config, src)
			url := strings.Replace(server.URL(p.name), "rtsp://", "rtsp://me:a%20word@", 1)
			for name, protocol := range map[string]gortsplib.Protocol{"UDP": gortsplib.ProtocolUDP, "TCP": gortsplib.ProtocolTCP} {
				rtptest.Need(t, again(t, func() (int, error) {
					got, err := playByGortsplib(url, protocol, frames)
					pictures, bad := decoded(t, p.name, got)
					all, good := rtptest.Right(pictures, p.size, func(b []byte) bool {
						return slices.ContainsFunc(src.Fill, func(f *pipeline.Frame) bool { return p.same(f, b) })
					})
					t.Logf("by %s: %d frames, %d right", name, all, good)
					if err == nil && bad == nil && all >= frames && good == all && len(pictures)%p.size == 0 {
						return good, nil
					}
					return good, fmt.Errorf("by %s: %d bytes, %d frames, %d of them right: %w", name, len(pictures), all, good, cmp.Or(err, bad, errWrong))
				}))
			}
		})
	}
}
