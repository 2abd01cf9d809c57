// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestMediaMTX publishes the stream to MediaMTX by WHIP, and checks the pictures that ffmpeg reads from it by RTSP,
// also after the server was killed and restarted.
func TestMediaMTX(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	remote := rtptest.NewMediaMTX(t)
	server, _, _ := serve(t, usual)
	p, err := server.Publish("camera", Remote{URL: fmt.Sprintf("http://%s/camera/whip", remote.HTTP), Token: func() (string, error) { return "board:a-word", nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const w, h, frames = 320, 240, 40
	f := rtptest.Format(t, pipeline.I420, w, h, 30)
	sent := rtptest.NewSource(t, f, 0).Fill
	for round := range 2 {
		remote.Start(t)
		taken := func() bool {
			list := server.Viewers("camera")
			return len(list) == 1 && list[0].Frames > 30 // then the server can pass it on
		}
		for until := time.Now().Add(patience); !taken(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatal("the server does not take the stream")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c := exec.CommandContext(ctx, "ffmpeg", "-loglevel", "error", "-rtsp_transport", "tcp", "-i", fmt.Sprintf("rtsp://%s/camera", remote.RTSP),
			"-fps_mode", "passthrough", "-frames:v", fmt.Sprint(frames), "-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:1")
		c.Stderr = t.Output()
		got, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		all, right := rtptest.Right(got, f.Size(), func(b []byte) bool {
			return slices.ContainsFunc(sent, func(s *pipeline.Frame) bool { return rtptest.PSNR(s.Bytes[:w*h], b[:w*h]) > 25 })
		})
		if right < frames/2 {
			t.Errorf("round %d: %d of %d pictures are right", round, right, all)
		}
		remote.Kill()
		for until := time.Now().Add(patience); len(server.Viewers("camera")) > 0; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatal("a server that was killed is still sent to")
			}
		}
	}
}
