// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// The frames of TestColours have vertical bars of grey, from black to white in equal steps.
const (
	greys      = 8
	greyWidth  = 128
	greyHeight = 96
)

// greyLevel returns the value of a column if black and white have the given values.
func greyLevel(x, black, white int) byte {
	return byte(black + (white-black)*(x*greys/greyWidth)/(greys-1))
}

// greyFile writes a YUV4MPEG2 file of one frame.
func greyFile(t *testing.T, chroma, tags string, black, white int) string {
	t.Helper()
	b := fmt.Appendf(nil, "YUV4MPEG2 W%d H%d F10:1 Ip C%s%s\nFRAME\n", greyWidth, greyHeight, chroma, tags)
	for range greyHeight {
		for x := range greyWidth {
			b = append(b, greyLevel(x, black, white))
		}
	}
	colour := 2 * greyWidth / 2 * greyHeight / 2
	if chroma == "422" {
		colour *= 2
	}
	path := filepath.Join(t.TempDir(), "grey.y4m")
	if err := os.WriteFile(path, append(b, bytes.Repeat([]byte{128}, colour)...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// greySamples writes a file with one frame of a sensor's samples of 8 bits.
func greySamples(t *testing.T) string {
	t.Helper()
	var b []byte
	for range greyHeight {
		for x := range greyWidth {
			b = append(b, greyLevel(x, 0, 255))
		}
	}
	path := filepath.Join(t.TempDir(), "grey.raw")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A colourTable holds the largest deviation of a grey step from its value, of 255, by source and payload.
type colourTable struct {
	mu    sync.Mutex
	cells map[string]map[string]int
}

func (c *colourTable) add(source, payload string, deviation int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cells[source] == nil {
		c.cells[source] = map[string]int{}
	}
	c.cells[source][payload] = max(c.cells[source][payload], deviation)
}

func (c *colourTable) String() string {
	payloads := []string{"h264", "jpeg", "raw", "browser", "y4m", "mkv", "mp4", "png", "dng"}
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "source\t"+strings.Join(payloads, "\t"))
	for _, source := range slices.Sorted(maps.Keys(c.cells)) {
		fmt.Fprint(t, source)
		for _, p := range payloads {
			if deviation, is := c.cells[source][p]; is {
				fmt.Fprintf(t, "\t%d", deviation)
			} else {
				fmt.Fprint(t, "\t")
			}
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	return out.String()
}

// greySteps returns the largest deviation of a step, given the value of a channel in a column.
func greySteps(value func(x, channel int) int, black, white int) (deviation int) {
	for i := range greys {
		x := i*greyWidth/greys + greyWidth/greys/2
		for c := range 3 {
			d := value(x, c) - int(greyLevel(x, black, white))
			deviation = max(deviation, d, -d)
		}
	}
	return deviation
}

// rgbSteps returns the largest deviation of a step in a picture of three bytes a pixel.
func rgbSteps(picture []byte) int {
	return greySteps(func(x, c int) int { return int(picture[3*(greyWidth*greyHeight/2+x)+c]) }, 0, 255)
}

// A colourSource is a kind of source with the payloads that can carry its frames.
type colourSource struct {
	file     func(t *testing.T) string
	yaml     string // of the source and its isp, with the file
	payloads string
}

func y4mSource(chroma, tags string, black, white int, payloads string) colourSource {
	return colourSource{
		file: func(t *testing.T) string { return greyFile(t, chroma, tags, black, white) },
		yaml: "sources: [{name: source, file: {path: %q}}]", payloads: payloads,
	}
}

// TestColours follows steps of grey from each kind of source into each payload that can carry it. Programs that know
// only the format must decode them as they are meant: ffmpeg, GStreamer, Chromium, dcraw.
func TestColours(t *testing.T) {
	programtest.NotShort(t)
	table := colourTable{cells: map[string]map[string]int{}}
	const samples = `
sources: [{name: source, file: {path: %q, width: 128, height: 96, rate: 10, sensor: {bits: 8}}}]
isp: [{name: isp, curve: [0, 1]}]`
	t.Run("sources", func(t *testing.T) {
		for name, s := range map[string]colourSource{
			"Y4M 4:2:0 of ffmpeg": y4mSource("420jpeg", " XYSCSS=420JPEG", 16, 235, "h264 y4m mkv mp4 browser"),
			"Y4M 4:2:0 limited":   y4mSource("420mpeg2", " XCOLORRANGE=LIMITED", 16, 235, "h264 y4m mkv mp4"),
			"Y4M 4:2:0 full":      y4mSource("420jpeg", " XCOLORRANGE=FULL", 0, 255, "h264 jpeg y4m mkv mp4 browser"),
			"Y4M 4:2:2":           y4mSource("422", "", 16, 235, "raw y4m mkv mp4 png"),
			"Y4M 4:2:2 full":      y4mSource("422", " XCOLORRANGE=FULL", 0, 255, "raw y4m mkv mp4 png"),
			"samples":             {greySamples, samples, "dng"},
			"samples by an isp":   {greySamples, samples, "h264 jpeg raw y4m mkv mp4 png browser"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s.follow(t, name, &table)
			})
		}
	})
	t.Logf("deviation of a step of grey, of 255:\n%s", &table)
}

// tolerance is the deviation that rounding and the loss of JPEG and H.264 explain. A wrong range is off by 16 or more.
const tolerance = 3

// follow streams and records a source, and lets peers decode each payload.
func (s colourSource) follow(t *testing.T, name string, table *colourTable) {
	dir, records := t.TempDir(), t.TempDir()
	from := "source"
	if strings.Contains(s.yaml, "isp:") && s.payloads != "dng" {
		from = "isp"
	}
	page := rtptest.EvenPorts(t, 1)[0]
	text := fmt.Sprintf("memory: host\nweb: {listen: \"127.0.0.1:%d\"}\nrtsp: {listen: none}\n", page) + fmt.Sprintf(s.yaml, s.file(t)) + "\noutputs:\n"
	ports := map[string][]int{}
	for payload := range strings.FieldsSeq(s.payloads) {
		if slices.Contains([]string{"h264", "jpeg", "raw"}, payload) {
			p := rtptest.EvenPorts(t, 2)
			ports[payload] = p
			text += fmt.Sprintf("  - {name: %s, from: %s, rtp: {payload: %s, destinations: [\"127.0.0.1:%d\", \"127.0.0.1:%d\"]}}\n", payload, from, payload, p[0], p[1])
		}
	}
	text += fmt.Sprintf("  - {name: clip, from: %s, record: {directory: %q}}\n", from, records)
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "colours.yaml", text), "--sdp-dir", dir)
	for payload := range ports {
		for peer, deviation := range decodeStream(t, dir, payload, ports[payload]) {
			table.add(name, payload, deviation)
			if deviation > tolerance {
				t.Errorf("%s by %s: a step of grey is off by %d", payload, peer, deviation)
			}
		}
	}
	if strings.Contains(s.payloads, "browser") {
		deviation := browserSteps(t, fmt.Sprintf("http://127.0.0.1:%d", page))
		table.add(name, "browser", deviation)
		if deviation > tolerance {
			t.Errorf("in the browser a step of grey is off by %d", deviation)
		}
	}
	for begin := time.Now(); len(recordedFiles(t, records)) == 0; time.Sleep(100 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("nothing is recorded")
		}
	}
	serve.Stop(t)
	for payload := range strings.FieldsSeq(s.payloads) {
		if slices.Contains([]string{"y4m", "mkv", "mp4", "png", "dng"}, payload) {
			deviation := exportedSteps(t, recordedFiles(t, records)[0], payload)
			table.add(name, payload, deviation)
			if deviation > tolerance {
				t.Errorf("exported as %s, a step of grey is off by %d", payload, deviation)
			}
		}
	}
}

func recordedFiles(t *testing.T, directory string) []string {
	t.Helper()
	list, err := record.Files(directory, "clip")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// decodeStream returns the largest deviation in the last picture of a stream that each peer has decoded. Neither ffmpeg
// nor GStreamer reads the range of raw video: there the samples must agree with the range that the SDP names.
func decodeStream(t *testing.T, dir, payload string, p []int) (deviations map[string]int) {
	t.Helper()
	sdp, second := filepath.Join(dir, payload+".sdp"), filepath.Join(dir, payload+"-second.sdp")
	programtest.Await(t, sdp)
	retarget(t, sdp, second, p[0], p[1])
	pixels, convert, size := "rgb24", " ! videoconvert ! video/x-raw,format=RGB", 3*greyWidth*greyHeight
	decode := map[string]string{"h264": "rtph264depay ! h264parse ! openh264dec", "jpeg": "rtpjpegdepay ! jpegdec", "raw": "rtpvrawdepay"}[payload]
	steps := rgbSteps
	if payload == "raw" {
		pixels, convert, size = "uyvy422", "", 2*greyWidth*greyHeight
		text, err := os.ReadFile(sdp)
		if err != nil {
			t.Fatal(err)
		}
		black, white := 16, 235
		if strings.Contains(string(text), "RANGE=FULL") {
			black, white = 0, 255
		} else if !strings.Contains(string(text), "RANGE=NARROW") {
			t.Errorf("no range in\n%s", text)
		}
		steps = func(picture []byte) int {
			return greySteps(func(x, _ int) int { return int(picture[2*(greyWidth*greyHeight/2+x)+1]) }, black, white)
		}
	}
	peers := map[string]*programtest.Process{
		"ffmpeg":    ffmpeg(t, sdp, "3", pixels, filepath.Join(dir, payload+"-ffmpeg")),
		"GStreamer": gstreamer(t, second, decode+convert, "4", filepath.Join(dir, payload+"-GStreamer")),
	}
	deviations = map[string]int{}
	for name, peer := range peers {
		peer.Need(t, time.Minute)
		pictures := split(t, filepath.Join(dir, payload+"-"+name), size)
		if len(pictures) == 0 {
			t.Errorf("%s: no picture", name)
			continue
		}
		deviations[name] = steps(pictures[len(pictures)-1])
	}
	return deviations
}

// exportedSteps returns the largest deviation in the first frame of a recording that was exported.
func exportedSteps(t *testing.T, file, format string) int {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out."+format)
	if status, _, said := runs(t, "record", "export", file, "--format", format, "-o", out); status != exitOK {
		t.Fatalf("%s: status %d: %s", format, status, said)
	}
	if format == "png" || format == "dng" {
		list, err := filepath.Glob(filepath.Join(out, "frame-*"))
		if err != nil || len(list) == 0 {
			t.Fatal(list, err)
		}
		out = list[0]
	}
	decoder := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-nostdin", "-i", out, "-frames:v", "1", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
	if format == "dng" { // linear, in the sensor's colours, not brightened
		decoder = exec.CommandContext(t.Context(), "dcraw", "-w", "-o", "0", "-4", "-c", out)
	}
	picture, err := decoder.Output()
	switch {
	case err != nil:
		t.Fatalf("%v: %v", decoder, err)
	case format == "dng":
		picture = picture[len(picture)-6*greyWidth*greyHeight:]
		return greySteps(func(x, c int) int {
			return (int(binary.BigEndian.Uint16(picture[6*(greyWidth*greyHeight/2+x)+2*c:])) + 128) / 257
		}, 0, 255)
	case len(picture) != 3*greyWidth*greyHeight:
		t.Fatalf("%v: %d bytes", decoder, len(picture))
	}
	return rgbSteps(picture)
}

// browserSteps returns the largest deviation in the picture that the page shows in a browser.
func browserSteps(t *testing.T, base string) int {
	t.Helper()
	if status, body := fetch(t, base+"/readyz"); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	ctx, _ := browser(t, programtest.Page(t, base))
	awaitPage(ctx, t, "a frame with its number", `document.getElementById("canvas").dataset.frame > 0`)
	return canvasSteps(ctx, t)
}

func canvasSteps(ctx context.Context, t *testing.T) int {
	t.Helper()
	line, err := chromedp.Run(ctx, chromedp.Evaluate[[]int](`(() => {
	const canvas = document.getElementById("canvas");
	return [canvas.width, ...canvas.getContext("2d").getImageData(0, canvas.height / 2, canvas.width, 1).data];
})()`))
	if err != nil || line[0] != greyWidth {
		t.Fatalf("%v, %d values", err, len(line))
	}
	return greySteps(func(x, c int) int { return line[1+4*x+c] }, 0, 255)
}
