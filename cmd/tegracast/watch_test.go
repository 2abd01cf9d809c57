// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// The pictures of these tests contain their frame's number as bars, one bit per bar, the lowest bit at the top. The upper
// bars move with the sensor's picture, by a block per frame, and have the number modulo the blocks of a line at the left
// margin. Below them is the number modulo the frames of the file.
const (
	stampWidth, stampHeight = 960, 540
	stampBlock              = 16 // pixels; the sensor shifts by as many per frame
	stampBlocks             = stampWidth / stampBlock
	stampFrames             = 17 // coprime to the number of blocks: the numbers repeat after 1,020 frames
	stampTop, stampBar      = 60, 40
	stampMoving, stampFixed = 6, 5 // bits
)

// numbered writes the raw file of the pictures.
func numbered(t testing.TB) (file string) {
	t.Helper()
	const black, white = 100, 900 // of 10 bits
	all := make([]byte, 0, stampFrames*stampWidth*stampHeight*2)
	for n := range stampFrames {
		for y := range stampHeight {
			bit := (y - stampTop) / stampBar
			for x := range stampWidth {
				number := x / stampBlock
				if bit >= stampMoving {
					number = n << stampMoving
				}
				sample := uint16(black)
				if y >= stampTop && bit < stampMoving+stampFixed && number>>bit&1 != 0 {
					sample = white
				}
				all = binary.LittleEndian.AppendUint16(all, sample)
			}
		}
	}
	file = filepath.Join(t.TempDir(), "numbers.raw")
	if err := os.WriteFile(file, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// watched starts an appliance that streams them as H.264, and returns the page's address.
func watched(t testing.TB) (appliance *programtest.Process, base string) {
	t.Helper()
	p := rtptest.EvenPorts(t, 1)
	text := fmt.Sprintf(`
web: {listen: "127.0.0.1:%d"}
rtsp: {listen: none}
sources: [{name: camera, model: {replay: %s, width: %d, height: %d, shift: %d, exposure: 10ms, readout: 15ms}}]
isp: [{name: isp, workers: 1, statistics: true}]
outputs: [{name: h264, rtp: {payload: h264, bitrate: 4000, bitrate_min: 4000}}]
`, p[0], numbered(t), stampWidth, stampHeight, stampBlock)
	appliance = programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "config.yaml", text), "--sdp-dir", t.TempDir())
	base = fmt.Sprintf("http://127.0.0.1:%d", p[0])
	if status, body := fetch(t, base+"/readyz"); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	return appliance, base
}

// readStamps stores, for each frame that the page draws, the page's number, the numbers in the pixels, and the time in
// ms.
const readStamps = `(() => {
	const canvas = document.getElementById("canvas");
	window.seen = [];
	new MutationObserver(() => {
		const now = performance.now();
		seen.push([Number(canvas.dataset.frame), ...numbers(canvas.getContext("2d")), now]);
	}).observe(canvas, { attributes: true, attributeFilter: ["data-frame"] });
	return true;
})()`

// stampReader is a function that reads the two numbers from a canvas.
var stampReader = fmt.Sprintf(`window.numbers = (context) => {
	const green = context.getImageData(%d, %d, 1, %d).data.filter((_, i) => i %% 4 === 1);
	const number = (from, bits) => Array.from({ length: bits }, (_, i) => green[(from + i) * %[4]d + %[4]d / 2] > 127 ? 1 << i : 0).reduce((a, b) => a + b);
	return [number(0, %d), number(%[5]d, %d)];
}; true`, stampBlock/2, stampTop, (stampMoving+stampFixed)*stampBar, stampBar, stampMoving, stampFixed)

// refuseOnce makes the video give no picture once, as happens right after its start.
const refuseOnce = `(() => {
	const Real = VideoFrame;
	window.VideoFrame = class extends Real {
		constructor(...args) {
			if (!window.refused) {
				window.refused = true;
				throw new DOMException("no picture", "InvalidStateError");
			}
			super(...args);
		}
	};
	return true;
})()`

// TestWatchInABrowser checks that a browser plays H.264 by WebRTC, and that each frame shown has the number and results
// displayed with it.
func TestWatchInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: a browser takes its time")
	}
	numbersAgree(t, 100)
}

// TestWatchThousand does the same with 1,000 frames.
func TestWatchThousand(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	numbersAgree(t, 1000)
}

// seenFrame is a record of readStamps or readRecorded.
type seenFrame [4]float64

func numbersAgree(t *testing.T, frames int) {
	appliance, base := watched(t)
	ctx, complaints := browser(t, programtest.Page(t, base))
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](refuseOnce)); err != nil {
		t.Fatal(err)
	}
	seen := watchStamps(ctx, t, frames)
	awaitPage(ctx, t, "a picture that the video refuses", "window.refused === true")
	for i, s := range seen {
		n := int(s[0])
		if n%stampBlocks != int(s[1]) || n%stampFrames != int(s[2]) {
			t.Fatalf("of %d frames, number %d is drawn as frame %d; modulo %d and %d that is %d and %d, its pixels have %v and %v",
				len(seen), i, n, stampBlocks, stampFrames, n%stampBlocks, n%stampFrames, s[1], s[2])
		}
	}
	first, last := seen[0], seen[len(seen)-1]
	t.Logf("%d frames from %.0f to %.0f in %.1f s", len(seen), first[0], last[0], (last[3]-first[3])/1000)
	if list := complaints(); len(list) > 0 {
		t.Errorf("the browser complains: %q", list)
	}
	keepPicture(ctx, t, "webrtc")
	accessible(ctx, t, "by WebRTC")
	appliance.Stop(t)
	awaitPage(ctx, t, "the end", `document.getElementById("state").textContent.startsWith("no answer from ")`)
}

// watchStamps reads the stamps of a number of frames, beginning with the first one that has a number.
func watchStamps(ctx context.Context, t testing.TB, frames int) (seen []seenFrame) {
	t.Helper()
	awaitPage(ctx, t, "a frame with its number", `document.getElementById("canvas").dataset.frame > 0`)
	for _, script := range []string{stampReader, readStamps} {
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script)); err != nil {
			t.Fatal(err)
		}
	}
	awaitPage(ctx, t, "frames", fmt.Sprintf("seen.length >= %d", frames))
	seen, err := chromedp.Run(ctx, chromedp.Evaluate[[]seenFrame]("seen"))
	if err != nil {
		t.Fatal(err)
	}
	return seen
}
