// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestProbeOfADyingSender checks that the death of a sender without BYE before the end of the probe is detected.
func TestProbeOfADyingSender(t *testing.T) {
	dir, p := t.TempDir(), rtptest.EvenPorts(t, 3)
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "two.yaml", fmt.Sprintf(twoYAML, p[0], p[1], p[2])), "--sdp-dir", dir)
	programtest.Await(t, filepath.Join(dir, "two.sdp"))
	saved := filepath.Join(dir, "saved")
	probe := programtest.StartProgram(t, "probe", "--sdp", filepath.Join(dir, "one.sdp"), "--duration", "1h", "--save", saved, "--json")
	programtest.Await(t, saved)
	if err := serve.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	serve.Wait(t, time.Minute)
	time.Sleep(1100 * time.Millisecond)
	if err := probe.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	status := probe.Wait(t, time.Minute)
	if v := probe.Verdict(t); status != exitFailure || v.Clean || v.Frames == 0 || v.Silence < time.Second || v.LastPacket.IsZero() || v.Ended {
		t.Errorf("status %d, %+v", status, v)
	}
}

// TestProbeSaves checks that ffmpeg can open the files that probe saves, with the right size and number of frames.
func TestProbeSaves(t *testing.T) {
	dir, p := t.TempDir(), rtptest.EvenPorts(t, 2)
	config := programtest.Write(t, "c.yaml", fmt.Sprintf(`
web: {listen: none}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 320, height: 240, rate: 20}}]
isp: [{name: isp}]
outputs:
  - {name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
  - {name: jpeg, rtp: {payload: jpeg, destinations: ["127.0.0.1:%d"]}}
`, p[0], p[1]))
	serve := programtest.StartProgram(t, "serve", "--config", config, "--sdp-dir", dir)
	for name, want := range map[string]string{"raw.y4m": "rawvideo,320,240,yuv422p,tv", "jpeg.mjpeg": "mjpeg,320,240,yuvj420p,pc"} {
		saved, sdp := filepath.Join(dir, name), filepath.Join(dir, strings.TrimSuffix(name, filepath.Ext(name))+".sdp")
		programtest.Await(t, sdp)
		probe := programtest.StartProgram(t, "probe", sdp, "--duration", "700ms", "--json", "--save", saved)
		probe.Wait(t, time.Minute) // its status reports losses
		v := probe.Verdict(t)
		out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-count_frames", "-of", "csv=p=0",
			"-show_entries", "stream=codec_name,width,height,pix_fmt,color_range,nb_read_frames", saved).CombinedOutput()
		if got, want := strings.TrimSpace(string(out)), fmt.Sprintf("%s,%d", want, v.Frames); err != nil || got != want || v.Frames == 0 {
			t.Errorf("%s: %v, %s, want %s", name, err, got, want)
		}
	}
	serve.Stop(t)
}

// TestProbeOfSeveralStreams checks that several streams, from several files or one, are received at the same time, and
// that the status is that of the worst.
func TestProbeOfSeveralStreams(t *testing.T) {
	programtest.NotShort(t)
	programtest.Quiet(t, severalStreams)
}

func severalStreams(t *testing.T) error {
	dir, p := t.TempDir(), rtptest.EvenPorts(t, 4)
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "two.yaml", fmt.Sprintf(twoYAML, p[0], p[1], p[2])), "--sdp-dir", dir)
	one, two, both, silent := filepath.Join(dir, "one.sdp"), filepath.Join(dir, "two.sdp"), filepath.Join(dir, "both.sdp"), filepath.Join(dir, "silent.sdp")
	programtest.Await(t, two)
	retarget(t, two, silent, p[1], p[3])
	var media strings.Builder
	for _, file := range []string{one, two} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		session, section, _ := strings.Cut(string(text), "m=")
		if media.Len() == 0 {
			media.WriteString(session)
		}
		media.WriteString("m=" + section)
	}
	if err := os.WriteFile(both, []byte(media.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	var lossy error
	for _, c := range []struct {
		sdp     []string
		streams []string
		silent  int
	}{
		{[]string{one, two}, []string{one, two}, -1},
		{[]string{both}, []string{both, both + "#2"}, -1},
		{[]string{silent, one}, []string{silent, one}, 0},
	} {
		args := []string{"probe", "--duration", "1s", "--json"}
		for _, file := range c.sdp {
			args = append(args, "--sdp", file)
		}
		status, out, errw := runs(t, args...)
		text := json.NewDecoder(strings.NewReader(out))
		for i, name := range c.streams {
			var v struct {
				Stream string `json:"stream"`
				programtest.Verdict
			}
			if err := text.Decode(&v); err != nil || v.Stream != name {
				t.Fatalf("stream %d of %v: %v, name %q\n%s\n%s", i, c.sdp, err, v.Stream, out, errw)
			}
			if clean := i != c.silent; v.Clean != clean || clean && (v.Frames < 30 || v.Matched != v.Frames) || !clean && v.Packets > 0 {
				lossy = errors.Join(lossy, fmt.Errorf("%s: %+v", name, v))
			}
		}
		if err := text.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
			t.Errorf("more than %d objects: %v\n%s", len(c.streams), err, out)
		}
		if want := map[bool]int{true: exitOK, false: exitFailure}[c.silent < 0]; status != want && lossy == nil {
			t.Errorf("%v: status %d, want %d", c.sdp, status, want)
		}
	}
	_, out, _ := runs(t, "probe", "--duration", "200ms", "--sdp", one, "--sdp", two)
	if strings.Count(out, "datagrams dropped here") != 2 || !strings.Contains(out, "\n\n"+two+": raw from") {
		t.Errorf("as text:\n%s", out)
	}
	serve.Stop(t)
	return lossy
}
