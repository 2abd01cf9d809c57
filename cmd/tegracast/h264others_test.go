// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// h264OfOthers are ways in which x264 makes pictures, as options of ffmpeg. The filters name the sizes of the pictures,
// one after the other.
var h264OfOthers = map[string]struct {
	sizes   []string
	options string
}{
	"B pictures":              {[]string{"160x128"}, "-bf 2 -b_strategy 0 -g 30"},
	"four slices":             {[]string{"160x128"}, "-bf 0 -g 20 -x264-params slices=4"},
	"slices of 300 bytes":     {[]string{"160x128"}, "-bf 2 -b_strategy 0 -x264-params slice-max-size=300"},
	"delimiters and SEI":      {[]string{"160x128"}, "-bf 1 -g 10 -x264-params aud=1:repeat-headers=1:nal-hrd=vbr:vbv-maxrate=500:vbv-bufsize=500"},
	"interlaced":              {[]string{"160x128"}, "-flags +ilme+ildct -bf 2 -x264-params tff=1"},
	"intra refresh":           {[]string{"160x128"}, "-bf 0 -g 10 -x264-params intra-refresh=1"},
	"changed parameter sets":  {[]string{"160x128", "192x96"}, "-bf 0 -g 15"},
	"units in packets (STAP)": {[]string{"160x128"}, "-bf 2 -b_strategy 0 -x264-params slice-max-size=200"},
}

// TestH264OfOthers receives the pictures of x264, sent by GStreamer, with
// probe --save, and compares the units with those of x264's file.
func TestH264OfOthers(t *testing.T) {
	programtest.NotShort(t)
	for name, v := range h264OfOthers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var all []byte
			for _, size := range v.sizes {
				makeH264(t, dir, fmt.Sprintf("-f lavfi -i testsrc2=size=%s:rate=30 -frames:v 45 -c:v libx264 -threads 1 -pix_fmt yuv420p %s -f mpegts -y all.ts",
					size, v.options))
				makeH264(t, dir, "-i all.ts -c copy -f h264 -y all.h264")
				b, err := os.ReadFile(filepath.Join(dir, "all.h264"))
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, b...)
			}
			if len(v.sizes) > 1 {
				if err := os.WriteFile(filepath.Join(dir, "all.h264"), all, 0o600); err != nil {
					t.Fatal(err)
				}
				makeH264(t, dir, "-r 30 -i all.h264 -c copy -f mpegts -y all.ts")
			}
			programtest.Quiet(t, func(t *testing.T) error {
				return receivesUnits(t, dir, strings.Contains(name, "STAP"), 45*len(v.sizes), units(all))
			})
		})
	}
}

func makeH264(t *testing.T, dir, args string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "ffmpeg", append([]string{"-v", "error"}, strings.Fields(args)...)...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// receivesUnits sends the pictures of all.ts in dir to probe, and compares what it saves with want.
func receivesUnits(t *testing.T, dir string, aggregated bool, pictures int, want [][]byte) error {
	t.Helper()
	port := rtptest.EvenPorts(t, 1)[0]
	sdp, saved := filepath.Join(dir, "o.sdp"), filepath.Join(dir, "saved.h264")
	text := fmt.Sprintf("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x264\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=video %d RTP/AVP 96\r\n"+
		"a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\n", port)
	if err := os.WriteFile(sdp, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	probe := programtest.StartProgram(t, "probe", sdp, "--duration", "1m", "--json", "--save", saved)
	programtest.Listening(t, probe.Process.Pid, port)
	mode := "none"
	if aggregated {
		mode = "zero-latency"
	}
	pipeline := fmt.Sprintf("-q filesrc location=all.ts ! tsdemux ! h264parse ! video/x-h264,stream-format=byte-stream,alignment=au ! "+
		"rtph264pay aggregate-mode=%s mtu=500 ! udpsink host=127.0.0.1 port=%d sync=true", mode, port)
	c := exec.CommandContext(t.Context(), "gst-launch-1.0", strings.Fields(pipeline)...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	time.Sleep(200 * time.Millisecond) // for the last packets
	if err := probe.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	probe.Wait(t, time.Minute)
	v := probe.Verdict(t)
	b, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	got := units(b)
	if v.Lost > 0 {
		return fmt.Errorf("%d packets were lost", v.Lost)
	}
	if v.Damaged > 0 || v.Late > 0 || v.Malformed > 0 {
		t.Errorf("%+v", v.Stats)
	}
	i := 0
	for i < len(got) && i < len(want) && bytes.Equal(got[i], want[i]) {
		i++
	}
	if i < len(got) || i < len(want)*9/10 {
		return fmt.Errorf("unit %d of %d differs, of %d: %d of %d pictures", i, len(got), len(want), v.Frames, pictures)
	}
	return nil
}

// units returns the units of a byte stream (H.264 annex B) without their start codes and without delimiters, which a
// packetizer may leave out.
func units(b []byte) (list [][]byte) {
	for _, u := range bytes.Split(b, []byte{0, 0, 1}) {
		u = bytes.TrimRight(u, "\x00")
		if len(u) > 0 && u[0]&31 != 9 {
			list = append(list, u)
		}
	}
	return slices.Clip(list)
}
