// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// readFromMediaMTX reads pictures at a path of the server with ffmpeg, and checks them.
func readFromMediaMTX(t *testing.T, server *rtptest.MediaMTX, path string, p payload, src *rtptest.Source) {
	t.Helper()
	const frames, sure = 40, 20 // a reader joins in the middle of a frame, and waits for a key frame
	got, err := p.peers["ffmpeg"].read(t, fmt.Sprintf("rtsp://%s/%s", server.RTSP, path), "tcp", frames)
	if err != nil {
		t.Fatal(err)
	}
	n, good := rtptest.Right(got[max(0, len(got)-sure*p.size):], p.size, func(b []byte) bool {
		return slices.ContainsFunc(src.Fill, func(f *pipeline.Frame) bool { return p.same(f, b) })
	})
	if n < sure || good < n {
		t.Errorf("%s: %d pictures at the end, %d of them right", p.name, n, good)
	}
}

// TestMediaMTX publishes raw video, JPEG and H.264 to MediaMTX by RECORD with a password, and reads the right pictures
// from it with ffmpeg, also after the server was killed and restarted.
func TestMediaMTX(t *testing.T) {
	long(t)
	server := rtptest.NewMediaMTX(t)
	all := append(payloads(t), h264(t))
	sources, sinks := map[string]*rtptest.Source{}, map[string]*send.Sink{}
	for _, p := range all {
		src := rtptest.NewSource(t, p.format, 0)
		sink, _ := serve(t, Config{}, p.name, p.config, src)
		to := Remote{URL: fmt.Sprintf("rtsp://%s/%s", server.RTSP, p.name), User: "board", Password: "a-word", Logger: slog.New(slog.DiscardHandler)}
		publisher, err := Publish(sink, to)
		if err != nil {
			t.Fatal(err)
		}
		defer publisher.Close()
		sources[p.name], sinks[p.name] = src, sink
	}
	for range 2 {
		server.Start(t)
		for _, p := range all {
			eventually(t, p.name+" is not taken", func() bool { return len(sinks[p.name].Stats().Destinations) == 1 })
			readFromMediaMTX(t, server, p.name, p, sources[p.name])
		}
		server.Kill()
		for _, p := range all {
			eventually(t, p.name+" is still sent", func() bool { return len(sinks[p.name].Stats().Destinations) == 0 })
		}
	}
}

// TestMediaMTXPulls lets MediaMTX read raw video, JPEG and H.264, and reads the right pictures from it with ffmpeg.
func TestMediaMTXPulls(t *testing.T) {
	long(t)
	server := rtptest.NewMediaMTX(t)
	server.Start(t)
	for _, p := range append(payloads(t), h264(t)) {
		t.Run(p.name, func(t *testing.T) {
			src := rtptest.NewSource(t, p.format, 0)
			sink, _ := serve(t, Config{Listen: server.Pulled}, p.name, p.config, src)
			readFromMediaMTX(t, server, "pull/"+p.name, p, src)
			if d := sink.Stats().Destinations; len(d) != 1 {
				t.Errorf("the readers are %+v", d)
			}
		})
	}
}
