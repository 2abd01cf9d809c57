// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cmd/tegracast/verdict"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/share"
)

const regionsYAML = `
web: {listen: "127.0.0.1:%d"}
rtsp: {listen: none}
sources: [{name: camera, model: {replay: %s, width: %d, height: %d, shift: %d, exposure: 20ms, readout: 30ms}}]
isp: [{name: isp, workers: 1}]
external:
  - {name: planes, pixels: i420, socket: %s, deadline: 1s}
  - {name: packed, pixels: uyvy, socket: %s, deadline: 1s}
outputs:
  - {name: h264, from: planes, rtp: {payload: h264, bitrate: 4000, bitrate_min: 4000}}
  - {name: raw, from: packed, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
`

// Regions are at the left edge of the block that has the frame's number modulo the blocks of a line, below the bars.
const regionTop, regionHeight, regionLine = 506, 30, 520

// hostileLabels are labels by the frame's number. They are as long as a stage allows.
var hostileLabels = []string{
	"<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>", "nul\x00\n\u202e\u0085", strings.Repeat("long ", 51), "car", "",
	strings.Repeat("\u00e4", 128),
}

// findsRegions answers each frame of an external stage with a region whose place follows from the frame's number, until ctx
// ends.
func findsRegions(ctx context.Context, t *testing.T, socket string) {
	t.Helper()
	k := subscribes(t, share.ClientConfig{Socket: socket, Policy: pipeline.Block, Answers: true})
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		for {
			f, err := k.Next(ctx)
			if err != nil {
				return // the end, which may be the appliance's
			}
			n := int(f.Sequence)
			r := pipeline.Region{
				X: n % stampBlocks * stampBlock % f.Format.Width, Y: min(regionTop, f.Format.Height-regionHeight), Width: 48, Height: regionHeight,
				Label: strings.Repeat("x", 1<<20), Score: 0.5,
			}
			if err := f.Respond(pipeline.Result{Regions: []pipeline.Region{r}}); err == nil || !strings.Contains(err.Error(), "at most 49152 are allowed") {
				t.Errorf("a label of 1 MiB: %v", err)
			}
			r.Label = hostileLabels[n%len(hostileLabels)]
			if err := f.Respond(pipeline.Result{Regions: []pipeline.Region{r}}); err != nil || f.Release() != nil {
				return
			}
		}
	}()
}

// TestProbeCountsRegions checks that probe receives results by RTP, also of a description that has them beside the video, and
// counts the frames with results and their regions.
func TestProbeCountsRegions(t *testing.T) {
	p, dir := rtptest.EvenPorts(t, 2), t.TempDir()
	socket := filepath.Join(dir, "model")
	text := fmt.Sprintf(`
web: {listen: none}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 320, height: 240, rate: 20}}]
isp: [{name: isp, workers: 1}]
external: [{name: model, pixels: uyvy, socket: %s, deadline: 1s}]
outputs:
  - {name: raw, from: model, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
  - {name: found, from: model, rtp: {payload: results, destinations: ["127.0.0.1:%d"], session: raw, checksum: true}}
`, socket, p[0], p[1])
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "config.yaml", text), "--sdp-dir", dir)
	findsRegions(t.Context(), t, socket)
	programtest.Await(t, filepath.Join(dir, "raw.sdp"))
	probe := programtest.StartProgram(t, "probe", filepath.Join(dir, "raw.sdp"), "--duration", "700ms", "--json", "--save", filepath.Join(dir, "pictures"))
	probe.Wait(t, time.Minute) // its status reports losses
	var video, found verdict.Stream
	reports := json.NewDecoder(strings.NewReader(probe.Out.String()))
	if err := errors.Join(reports.Decode(&video), reports.Decode(&found)); err != nil {
		t.Fatalf("%v: %s", err, probe.Out.String())
	}
	if video.Frames == 0 || video.Results != 0 || found.Frames == 0 || found.Results == 0 || found.Regions != found.Results || found.Matched == 0 || found.Mismatched > 0 {
		t.Errorf("%+v\n%+v", video, found)
	}
	if size, err := os.Stat(filepath.Join(dir, "pictures")); err != nil || size.Size() != int64(video.Frames)*320*240*2 {
		t.Errorf("%v, %d frames are saved as %d bytes", err, video.Frames, size.Size())
	}
	probe = programtest.StartProgram(t, "probe", filepath.Join(dir, "found.sdp"), "--duration", "300ms")
	probe.Wait(t, time.Minute)
	counted := regexp.MustCompile(`(?s)^results from 127\.0\.0\.1.*\nresults     in [1-9]\d* frames, with [1-9]\d* regions\n$`)
	if out := probe.Out.String(); !counted.MatchString(out) {
		t.Errorf("%s", out)
	}
	serve.Stop(t)
}

// readRegions stores, for each frame that the page draws, the page's number, the numbers in the pixels, and the left edge of
// the region, or -1 if none is drawn. It also stores what is written.
var readRegions = fmt.Sprintf(`(() => {
	const canvas = document.getElementById("canvas"), write = CanvasRenderingContext2D.prototype.fillText;
	window.seen = [];
	window.texts = new Set();
	CanvasRenderingContext2D.prototype.fillText = function (text, ...more) { texts.add(text); write.call(this, text, ...more); };
	new MutationObserver(() => {
		const g = canvas.getContext("2d"), line = g.getImageData(0, %d, canvas.width, 1).data;
		const green = (x) => line[4 * x] > 120 && line[4 * x] < 170 && line[4 * x + 1] > 190 && line[4 * x + 2] < 110;
		let left = 0;
		while (left < canvas.width && !green(left)) left++;
		seen.push([Number(canvas.dataset.frame), ...numbers(g), left === canvas.width ? -1 : left]);
	}).observe(canvas, { attributes: true, attributeFilter: ["data-frame"] });
	return true;
})()`, regionLine)

// TestRegionsInABrowser checks that the page draws the regions that a process has found in a frame over that very frame, by
// WebRTC and over JPEG pictures, and that their labels are text, whatever they contain.
func TestRegionsInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: a browser takes its time")
	}
	p, dir := rtptest.EvenPorts(t, 2), t.TempDir()
	sockets := [2]string{filepath.Join(dir, "planes"), filepath.Join(dir, "packed")}
	text := fmt.Sprintf(regionsYAML, p[0], numbered(t), stampWidth, stampHeight, stampBlock, sockets[0], sockets[1], p[1])
	appliance := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "config.yaml", text), "--sdp-dir", dir)
	for _, s := range sockets {
		findsRegions(t.Context(), t, s)
	}
	base := fmt.Sprintf("http://127.0.0.1:%d", p[0])
	if status, body := fetch(t, base+"/readyz"); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	ctx, complaints := browser(t, programtest.Page(t, base))
	awaitPage(ctx, t, "a frame by WebRTC", `document.getElementById("canvas").dataset.frame > 0`)
	for _, script := range []string{stampReader, readRegions} {
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script)); err != nil {
			t.Fatal(err)
		}
	}
	regionsAgree(ctx, t, "webrtc", 60)
	pressed(ctx, t, `[...document.querySelectorAll("#choice button")].find((b) => b.textContent === "raw")`)
	awaitPage(ctx, t, "a picture with regions", `watch === null && !document.getElementById("canvas").hidden && document.getElementById("picture").hidden`)
	regionsAgree(ctx, t, "jpeg", 30)
	for _, c := range [][2]string{ // what must be true in the page
		{"a label is text", `window.hacked === undefined && document.querySelectorAll("script").length === 6`},
		{"tags are written", `texts.has("<script>window.hacked = 1</script><img … 0.50")`},
		{"control characters are replaced", `texts.has("nul\ufffd\ufffd\ufffd\ufffd 0.50")`},
		{"long labels are cut", `texts.has("long ".repeat(8).slice(0, 39) + "… 0.50") && texts.has("\u00e4".repeat(39) + "… 0.50")`},
		{"short and missing labels", `texts.has("car 0.50") && texts.has("0.50") && [...texts].every((t) => t.length <= 45)`},
		{"a smaller picture", `(() => {
			const c = document.createElement("canvas"), row = () => [...c.getContext("2d").getImageData(0, 90, 200, 1).data].filter((_, i) => i % 4 === 3);
			[c.width, c.height] = [200, 100];
			drawReport(c, { frame: 1, width: 400, height: 400, results: [{ regions: [{ x: 200, y: 300, width: 100, height: 99 }] }] });
			return row().indexOf(255) === 99 && row().lastIndexOf(255) === 150;
		})()`},
	} {
		awaitPage(ctx, t, c[0], c[1])
	}
	if list := complaints(); len(list) > 0 {
		t.Errorf("the browser complains: %q", list)
	}
	keepPicture(ctx, t, "regions")
	accessible(ctx, t, "with regions")
	appliance.Stop(t)
}

// regionsAgree checks a number of frames that the page draws with regions: each has the region of its number.
func regionsAgree(ctx context.Context, t *testing.T, way string, frames int) {
	t.Helper()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("seen.length = 0; true")); err != nil {
		t.Fatal(err)
	}
	awaitPage(ctx, t, "frames with regions: "+way, fmt.Sprintf("seen.filter((s) => s[3] >= 0).length >= %d", frames))
	seen, err := chromedp.Run(ctx, chromedp.Evaluate[[]seenFrame]("seen"))
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range seen {
		n, left := int(s[0]), int(s[3])
		if n%stampBlocks != int(s[1]) || n%stampFrames != int(s[2]) {
			t.Fatalf("%s: of %d frames, number %d is drawn as frame %d, its pixels have %v and %v", way, len(seen), i, n, s[1], s[2])
		}
		if want := n % stampBlocks * stampBlock; left >= 0 && left != want && left != want-1 {
			t.Fatalf("%s: of %d frames, number %d, frame %d has a region at %d, must be at %d", way, len(seen), i, n, left, want)
		}
	}
	t.Logf("%s: %d frames from %.0f to %.0f", way, len(seen), seen[0][0], seen[len(seen)-1][0])
}
