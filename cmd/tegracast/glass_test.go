// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// glassFrames is the number of frames that BenchmarkGlassToGlass measures each way.
const glassFrames = 300

// lastLine is the time from the start of a frame's exposure until its last line leaves the sensor.
const lastLine = 25 * time.Millisecond

// keepTimes stores when each frame was taken, in ms, from its report.
const keepTimes = `(() => {
	window.taken = {};
	const mark = Watch.prototype.mark;
	Watch.prototype.mark = function (report) { taken[report.frame] = Date.parse(report.captured); mark.call(this, report); };
	return true;
})()`

// delays is an expression for the delays of the frames that readStamps has seen, in ms.
const delays = `seen.filter((s) => taken[s[0]]).map((s) => performance.timeOrigin + s[3] - taken[s[0]])`

// readPictures shows JPEG pictures and stores their delays. The sensor is exactly periodic, so the time of a frame
// follows from a frame with a known report.
const readPictures = `(() => {
	const frames = Object.keys(taken), known = Number(frames[frames.length - 1]), period = 1000 / 30;
	window.late = [];
	show(shown, true);
	const picture = document.getElementById("picture"), canvas = document.createElement("canvas"), g = canvas.getContext("2d");
	let before = "";
	const look = () => {
		requestAnimationFrame(look);
		if (!picture.naturalWidth) return;
		[canvas.width, canvas.height] = [picture.naturalWidth, picture.naturalHeight];
		g.drawImage(picture, 0, 0);
		const now = performance.timeOrigin + performance.now(), [blocks, file] = numbers(g);
		if (before === blocks + " " + file || blocks >= 60 || file >= 17) return;
		before = blocks + " " + file;
		let n = known + Math.floor((now - taken[known]) / period); // the frame that is taken now, or one before
		while (n % 60 !== blocks || n % 17 !== file) n--;
		late.push(now - taken[known] - (n - known) * period);
	};
	look();
	return true;
})()`

// BenchmarkGlassToGlass measures the time from the sensor's last line to the pixels on a canvas of the page, by WebRTC
// and by JPEG pictures, and the same for GStreamer's webrtcbin as the sender. Everything runs on this machine, in turn.
func BenchmarkGlassToGlass(b *testing.B) {
	rounds := map[string][]float64{}
	for range b.N {
		appliance, base := watched(b)
		ctx, _ := browser(b, programtest.Page(b, base))
		awaitPage(ctx, b, "a frame with its number", `document.getElementById("canvas").dataset.frame > 0`)
		evaluate[bool](ctx, b, keepTimes)
		watchStamps(ctx, b, glassFrames)
		offset := float64(lastLine.Milliseconds()) // times count from the start of the exposure
		reportDelays(b, rounds, "webrtc", offset, evaluate[[]float64](ctx, b, delays))
		evaluate[bool](ctx, b, readPictures)
		awaitPage(ctx, b, "pictures", "late.length >= 300")
		reportDelays(b, rounds, "mjpeg", offset, evaluate[[]float64](ctx, b, "late.slice(10)")) // without the start of the view
		appliance.Stop(b)
		closes(ctx, b)
		reportDelays(b, rounds, "webrtcbin", 0, glassPeer(b))
	}
	for name, list := range rounds {
		b.Logf("%s in each round: %.0f ms", name, list)
		slices.Sort(list)
		b.ReportMetric(list[len(list)/2], name+"-ms")
	}
}

// evaluate returns the result of a script in the page.
func evaluate[T any](ctx context.Context, b *testing.B, script string) T {
	b.Helper()
	x, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.Fatal(err)
	}
	return x
}

// reportDelays adds the p50 and p99 of delays in ms, minus the offset, to those of other rounds.
func reportDelays(b *testing.B, rounds map[string][]float64, way string, offset float64, late []float64) {
	b.Helper()
	if len(late) == 0 {
		b.Fatalf("%s: no frame was seen", way)
	}
	slices.Sort(late)
	p50, p99 := late[len(late)/2]-offset, late[len(late)*99/100]-offset
	rounds[way+"-p50"], rounds[way+"-p99"] = append(rounds[way+"-p50"], p50), append(rounds[way+"-p99"], p99)
}

// closes ends a browser, which would slow down the next measurement.
func closes(ctx context.Context, b *testing.B) {
	b.Helper()
	if err := chromedp.Cancel(ctx); err != nil {
		b.Error(err)
	}
}
