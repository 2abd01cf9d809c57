// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestGStreamerSendsTheSamePackets compares the packets of a 1080p frame with those of GStreamer's payloader at the
// same MTU, byte for byte.
func TestGStreamerSendsTheSamePackets(t *testing.T) {
	if _, err := exec.LookPath("gst-launch-1.0"); err != nil {
		t.Fatalf("gst-launch-1.0 is missing: apt-get install %s", rtptest.GStreamer)
	}
	f := rtptest.Format(t, pipeline.UYVY, 1920, 1080, 30)
	frame := rtptest.Frame(f, 0)
	dir := t.TempDir()
	in, out := filepath.Join(dir, "frame"), filepath.Join(dir, "packets")
	if err := os.WriteFile(in, frame.Bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	start := Start{SSRC: 0x1234abcd}
	frame.Times.ExposureStart = time.Unix(0, 0)
	cmd := exec.Command("gst-launch-1.0", "-q", "filesrc", "location="+in, "blocksize=4147200", "!",
		"rawvideoparse", "format=uyvy", "width=1920", "height=1080", "framerate=30/1", "colorimetry=bt709", "!",
		"rtpvrawpay", "mtu=1300", "pt=96", "ssrc=305441741", "seqnum-offset=0", "timestamp-offset=0", "!",
		"rtpstreampay", "!", "filesink", "location="+out)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want := packets(t, testPacking(t, Stream{MTU: 1300 + ipUDPHeader, Start: &start}, f), frame)
	for i, p := range want {
		if len(b) < 2+len(p) || int(be.Uint16(b)) != len(p) {
			t.Fatalf("packet %d: GStreamer's is %d bytes long, want %d", i, be.Uint16(b), len(p))
		}
		if got := b[2 : 2+len(p)]; !bytes.Equal(got, p) {
			t.Fatalf("packet %d: GStreamer % x, ours % x", i, got[:24], p[:24])
		}
		b = b[2+len(p):]
	}
	if len(b) > 0 {
		t.Errorf("GStreamer sends %d bytes more", len(b))
	}
}
