// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestGStreamer watches by WHEP with webrtcbin, and checks the decoded pictures. DELETE ends the session.
func TestGStreamer(t *testing.T) {
	t.Parallel()
	const python = "/usr/bin/python3" // the one with Debian's modules
	if out, err := exec.CommandContext(t.Context(), python, "-c", `import gi
gi.require_version("GstWebRTC", "1.0")
from gi.repository import Gst
Gst.init(None)
raise SystemExit(not all(map(Gst.ElementFactory.find, ["webrtcbin", "nicesrc", "openh264dec"])))`).CombinedOutput(); err != nil {
		t.Skipf("NEEDS webrtcbin for Python: apt-get install python3-gi gir1.2-gst-plugins-bad-1.0 gstreamer1.0-nice: %s", out)
	}
	if !rtptest.Apart(t) { // libnice has no candidates for the loopback
		return
	}
	server, _, base := serveAt(t, usual, "10.9.0.1:0")
	const w, h, frames = 320, 240, 60
	f := rtptest.Format(t, pipeline.I420, w, h, 30)
	path := filepath.Join(t.TempDir(), "pictures")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, python, "testdata/whep.py", base+"/camera/whep", path, strconv.Itoa(frames)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sent := rtptest.NewSource(t, f, 0).Fill
	all, right := len(got)/f.Size(), 0
	for n := range all {
		if slices.ContainsFunc(sent, func(s *pipeline.Frame) bool { return rtptest.PSNR(s.Bytes[:w*h], got[n*f.Size():][:w*h]) > 25 }) {
			right++
		}
	}
	if all < frames || right < all {
		t.Errorf("%d pictures, %d of them right", all, right)
	}
	for until := time.Now().Add(patience); server.count() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the session does not end")
		}
	}
}
