// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestBottleneck checks that the encoder's bit rate falls when a UDP reader behind a network with half the bandwidth
// reports losses, and rises again when the network has full bandwidth.
func TestBottleneck(t *testing.T) {
	long(t)
	if !rtptest.Apart(t) {
		return
	}
	const most, takes = 2_000_000, "1mbit"
	p := h264(t)
	p.config.MostBits, p.config.LeastBits = most, most/8
	sink, server := serve(t, Config{}, p.name, p.config, rtptest.NewSource(t, p.format, 0))
	reader := exec.CommandContext(t.Context(), "ffmpeg", "-loglevel", "quiet", "-rtsp_transport", "udp", "-i", server.URL(p.name), "-f", "null", "-")
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = reader.Process.Kill()
		_ = reader.Wait()
	}()
	eventually(t, "nobody reads", func() bool { d := sink.Stats().Destinations; return len(d) == 1 && d[0].Frames > 30 })
	network := func(args string) {
		if out, err := exec.CommandContext(t.Context(), "tc", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("tc %s: %v: %s", args, err, out)
		}
	}
	network("qdisc add dev lo root tbf rate " + takes + " burst 8kb limit 8kb")
	began, least := time.Now(), most
	eventually(t, "the encoder makes too many bits", func() bool { least = sink.Stats().Bits; return least <= most*6/10 })
	t.Logf("%d bits after %v: %v", least, time.Since(began), sink.Stats().Destinations)
	network("qdisc del dev lo root")
	eventually(t, "the encoder does not make more bits again", func() bool { return sink.Stats().Bits > least*12/10 })
	t.Logf("%d bits after %v: %v", sink.Stats().Bits, time.Since(began), sink.Stats().Destinations)
}
