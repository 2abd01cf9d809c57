// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// still returns the next still of a serve process, such as raw.png, and its frame's number.
func still(t *testing.T, page int, name string) (file []byte, frame int) {
	t.Helper()
	var answer *http.Response
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) { // serve may not listen yet
		var err error
		if answer, err = programtest.Client.Get(fmt.Sprintf("http://127.0.0.1:%d/%s", page, name)); err == nil && answer.StatusCode == http.StatusOK {
			break
		}
		if err == nil {
			answer.Body.Close()
		}
		if time.Since(begin) > time.Minute {
			t.Fatal(err, answer)
		}
	}
	defer answer.Body.Close()
	file, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if frame, err = strconv.Atoi(answer.Header.Get("X-Sequence")); err != nil {
		t.Fatal(err)
	}
	return file, frame
}

// showPicture returns the next picture of an output, at full size, and its frame's number.
func showPicture(t *testing.T, page int, name string) (image.Image, int) {
	t.Helper()
	file, frame := still(t, page, name+".png")
	picture, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return picture, frame
}

// patch returns the means of red, green and blue of a square of the test chart around (x, y), which has moved to the left
// by two pixels for each frame.
func patch(picture image.Image, frame, x, y int) (mean [3]float64) {
	const half, width = 12, 1920
	for dy := -half; dy < half; dy++ {
		for dx := -half; dx < half; dx++ {
			c := color.RGBAModel.Convert(picture.At(((x+dx-2*frame)%width+width)%width, y+dy)).(color.RGBA)
			for i, v := range []uint8{c.R, c.G, c.B} {
				mean[i] += float64(v) / (4 * half * half)
			}
		}
	}
	return mean
}

// tint returns how far red, green and blue are apart, as a share of the greatest.
func tint(c [3]float64) float64 {
	return 1 - min(c[0], c[1], c[2])/max(c[0], c[1], c[2])
}

// serveChart runs serve with the default configuration, changed by some replacements.
func serveChart(t *testing.T, replace ...string) (page int) {
	t.Helper()
	p := rtptest.EvenPorts(t, 3)
	text := strings.NewReplacer(append(replace, "# web: { listen: 127.0.0.1:8080", fmt.Sprintf("web: { listen: 127.0.0.1:%d", p[0]),
		"# rtsp: { listen: 127.0.0.1:8554, user: me, password_file: /etc/tegracast/password }", "rtsp: {listen: none}",
		":5004", fmt.Sprint(":", p[1]), ":5006", fmt.Sprint(":", p[2]))...).Replace(string(config.Default()))
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "chart.yaml", text), "--sdp-dir", t.TempDir())
	t.Cleanup(func() { serve.Stop(t) })
	return p[0]
}

// TestChart checks that the default configuration shows the test chart upright, its white patches at the top and its black
// ones below, and its grey ones neutral: within 1 % at the middle, and nearly so in the corners, where the light differs.
func TestChart(t *testing.T) {
	programtest.NotShort(t)
	picture, n := showPicture(t, serveChart(t), "raw")
	white, black := patch(picture, n, 1050, 90), patch(picture, n, 1050, 960)
	if min(white[0], white[1], white[2]) < 250 || max(black[0], black[1], black[2]) > 40 {
		t.Errorf("the patches at the top are %.1f, at the bottom %.1f: the chart is not upright", white, black)
	}
	for i, at := range [][2]int{{940, 480}, {1056, 470}, {360, 830}, {1640, 800}, {470, 910}, {1600, 100}, {440, 240}} {
		grey, allowed := patch(picture, n, at[0], at[1]), 0.01
		if i >= 2 {
			allowed = 0.015
		}
		t.Logf("grey at %v: %.1f", at, grey)
		if tint(grey) > allowed || grey[1] < 100 || grey[1] > 150 {
			t.Errorf("grey at %v: R, G, B %.1f: not neutral to %.1f %%", at, grey, 100*allowed)
		}
	}
}

// TestHighlightsStayWhite checks that what is clipped in the chart is white also when automatic exposure has made the
// picture darker.
func TestHighlightsStayWhite(t *testing.T) {
	programtest.NotShort(t)
	page := serveChart(t, "# auto: {", "auto: {")
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		picture, n := showPicture(t, page, "raw")
		white, grey := patch(picture, n, 1050, 90), patch(picture, n, 1056, 470)
		if grey[1] > 90 { // in the capture 122
			if time.Since(begin) > time.Minute {
				t.Fatalf("the grey patch is still %.1f: the exposure has not become shorter", grey)
			}
			continue
		}
		t.Logf("white %.1f, grey %.1f", white, grey)
		if tint(white) > 0.05 || white[1] < 1.5*grey[1] {
			t.Errorf("what is clipped has become %.1f, beside a grey of %.1f", white, grey)
		}
		return
	}
}

// TestTurnedPicture compares the pictures of two isps, one of which flips and rotates, and their SDPs. A DNG has the tag
// Orientation of the first isp.
func TestTurnedPicture(t *testing.T) {
	programtest.NotShort(t)
	p, dir := rtptest.EvenPorts(t, 3), t.TempDir()
	serve := programtest.StartProgram(t, "serve", "--sdp-dir", dir, "--config", programtest.Write(t, "turned.yaml", fmt.Sprintf(`
memory: host
web: {listen: "127.0.0.1:%d"}
rtsp: {listen: none}
sources: [{name: camera, slots: 12, model: {width: 640, height: 360, shift: 0}}]
isp: [{name: other, flip: horizontal, rotate: 90}, {name: isp}]
outputs:
  - {name: plain, from: isp, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
  - {name: turned, from: other, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
`, p[0], p[1], p[2])))
	defer serve.Stop(t)
	plain, _ := showPicture(t, p[0], "plain")
	turned, _ := showPicture(t, p[0], "turned")
	if turned.Bounds() != image.Rect(0, 0, 360, 640) {
		t.Fatalf("turned: %v", turned.Bounds())
	}
	for y := 4; y < 360; y++ { // the first lines have the frame's number
		for x := range 640 {
			// The flip takes (x, y) to (639-x, y), the rotation takes that to (359-y, 639-x).
			if got, want := turned.At(359-y, 639-x), plain.At(x, y); got != want {
				t.Fatalf("pixel (%d, %d) is %v, want that of (%d, %d), %v", 359-y, 639-x, got, x, y, want)
			}
		}
	}
	for name, size := range map[string]string{"plain": "width=640; height=360", "turned": "width=360; height=640"} {
		programtest.Await(t, filepath.Join(dir, name+".sdp"))
		sdp, err := os.ReadFile(filepath.Join(dir, name+".sdp"))
		if err != nil || !strings.Contains(string(sdp), size) {
			t.Errorf("%s: %v, no %s in\n%s", name, err, size, sdp)
		}
	}
	if dng, _ := still(t, p[0], "turned.dng"); !bytes.Contains(dng, []byte("\x12\x01\x03\x00\x01\x00\x00\x00\x07\x00")) {
		t.Error("the DNG has no tag 274 with the value 7, transposed along the other diagonal")
	}
}
