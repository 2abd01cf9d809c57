// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// glassFrames are those that BenchmarkGlassToGlass measures, each way.
const glassFrames = 300

// lastLine is how long after the begin of its exposure a frame's last line leaves the sensor.
const lastLine = 25 * time.Millisecond

// keepTimes keeps when each frame was taken, in ms, as its report says.
const keepTimes = `(() => {
	window.taken = {};
	const mark = Watch.prototype.mark;
	Watch.prototype.mark = function (report) { taken[report.frame] = Date.parse(report.captured); mark.call(this, report); };
	return true;
})()`

// delays are those of the frames that readStamps has seen, in ms.
const delays = `seen.filter((s) => taken[s[0]]).map((s) => performance.timeOrigin + s[3] - taken[s[0]])`

// readPictures shows JPEG pictures, and keeps the delay of each. When a frame was taken follows from one whose report is known: the
// sensor is punctual.
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

// BenchmarkGlassToGlass measures from the sensor's last line to the pixels on a canvas of the page, by WebRTC and by JPEG pictures, all on
// this machine.
func BenchmarkGlassToGlass(b *testing.B) {
	for range b.N {
		appliance, base := watched(b)
		ctx, _ := browser(b, base)
		awaitPage(ctx, b, "a frame with its number", `document.getElementById("canvas").dataset.frame > 0`)
		evaluate[bool](ctx, b, keepTimes)
		watchStamps(ctx, b, glassFrames)
		report(b, "webrtc", evaluate[[]float64](ctx, b, delays))
		evaluate[bool](ctx, b, readPictures)
		awaitPage(ctx, b, "pictures", "late.length >= 300")
		report(b, "mjpeg", evaluate[[]float64](ctx, b, "late.slice(10)")) // the first ones show how the view begins
		appliance.Stop(b)
	}
}

// evaluate returns what a script in the page does.
func evaluate[T any](ctx context.Context, b *testing.B, script string) T {
	b.Helper()
	x, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.Fatal(err)
	}
	return x
}

// report reports delays from the begin of the exposure, in ms, as those from the last line.
func report(b *testing.B, way string, late []float64) {
	slices.Sort(late)
	offset := float64(lastLine.Milliseconds())
	b.ReportMetric(late[len(late)/2]-offset, way+"-p50-ms")
	b.ReportMetric(late[len(late)*99/100]-offset, way+"-p99-ms")
}
