// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/bits"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cmd/tegracast/web"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// recordedPage starts an appliance that records numbered pictures as H.264 in files of at least a duration, and returns
// the page's address and a file that is finished. If whole is true, the file misses no frame.
func recordedPage(t *testing.T, duration time.Duration, whole bool) (appliance *programtest.Process, base, dir string, file web.RecordingFile) {
	t.Helper()
	dir = t.TempDir()
	base = fmt.Sprintf("127.0.0.1:%d", rtptest.EvenPorts(t, 1)[0])
	text := fmt.Sprintf(`
web: {listen: %q}
rtsp: {listen: none}
sources: [{name: camera, model: {replay: %s, width: %d, height: %d, shift: %d, exposure: 10ms, readout: 15ms}}]
isp: [{name: isp, workers: 1, statistics: true}]
outputs: [{name: live, rtp: {payload: h264, bitrate: 4000, bitrate_min: 4000}, record: {directory: %q, duration: %v, sync: 500ms}}]
`, base, numbered(t), stampWidth, stampHeight, stampBlock, dir, duration)
	appliance = programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "config.yaml", text), "--sdp-dir", t.TempDir())
	base = "http://" + base
	for deadline := time.Now().Add(time.Minute + 2*duration); ; time.Sleep(50 * time.Millisecond) {
		var l web.RecordingList
		_, text := fetch(t, base+"/api/v1/recordings")
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, f := range l.Files {
			if f.State == "finished" && (!whole || f.Frames == int(f.LastFrame-f.FirstFrame)+1) { // the machine was fast enough
				return appliance, base, dir, f
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no file is finished, with all frames: %s\n%s", text, appliance.Err.String())
		}
	}
}

// TestRecordingsByHTTP checks the numbers at both ends of parts that a client downloads, and that a client can neither
// delete the file that is being written nor, after deleting the other one, get that. When the stream is stopped, the page
// still leads to its files.
func TestRecordingsByHTTP(t *testing.T) {
	appliance, base, dir, file := recordedPage(t, 3*time.Second, true)
	path := base + "/api/v1/recordings/" + file.File
	if numbers, finished := recordedNumbers(t, filepath.Join(dir, file.File)); !finished || len(numbers) != file.Frames ||
		numbers[0] != file.FirstFrame || numbers[len(numbers)-1] != file.LastFrame || file.Width != stampWidth || file.Encoding != "h264" {
		t.Errorf("%+v; its numbers are %v, %v", file, numbers, finished)
	}
	from, to := file.FirstFrame+7, file.LastFrame-5
	for query, want := range map[string][2]uint64{
		"":                                      {file.FirstFrame, file.LastFrame},
		fmt.Sprintf("?from=%d&to=%d", from, to): {from, to - 1},
		"?from=%2B3&to=%2B4":                    {file.FirstFrame + 3, file.FirstFrame + 3},
	} {
		_, video := fetch(t, path+"/video.mp4"+query)
		var span web.RecordedSpan
		_, frames := fetch(t, path+"/frames"+query)
		if err := json.Unmarshal([]byte(frames), &span); err != nil {
			t.Fatalf("%s: %v", frames, err)
		}
		pictures := greyPictures(t, programtest.Write(t, "part.mp4", video))
		if len(pictures) != len(span.Frames) || len(pictures) != int(want[1]-want[0])+1 {
			t.Fatalf("%s: %d pictures, %d frames, want %v", query, len(pictures), len(span.Frames), want)
		}
		for i, p := range pictures {
			n := want[0] + uint64(i)
			moving, fixed := stampsOf(p)
			if int(n%stampBlocks) != moving || int(n%stampFrames) != fixed || string(span.Frames[i].Note["frame"]) != fmt.Sprint(n) {
				t.Errorf("%s: picture %d is frame %s, its pixels have %d and %d", query, i, span.Frames[i].Note["frame"], moving, fixed)
			}
		}
	}
	growing := recordedStreams(t, dir, "live")
	slices.Sort(growing)
	if n := requested(t, "DELETE", base+"/api/v1/recordings/"+filepath.Base(growing[len(growing)-1])); n != http.StatusConflict {
		t.Errorf("the file that is being written: %d", n)
	}
	if deleted, gone := requested(t, "DELETE", path), requested(t, "GET", path); deleted != http.StatusOK || gone != http.StatusNotFound {
		t.Errorf("deleted: %d, then %d", deleted, gone)
	}
	if n := requested(t, "POST", base+"/api/v1/outputs/live/stop"); n != http.StatusOK {
		t.Errorf("stopping it: %d", n)
	}
	if _, state := fetch(t, base+"/api/v1/status"); !strings.Contains(state, `"files":true,"stopped":true`) {
		t.Errorf("stopped, it is %s", state)
	}
	appliance.Stop(t)
}

// requested sends a request and returns the status of its answer.
func requested(t *testing.T, method, path string) int {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := programtest.Client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

// readRecorded stores, for each picture that the player draws with its number, the number, those in the pixels, and a
// result of the frame that depends on the second one: how bright the samples are.
const readRecorded = `(() => {
	const canvas = document.getElementById("canvas");
	window.seen = [];
	new MutationObserver(() => {
		if (canvas.dataset.frame) seen.push([Number(canvas.dataset.frame), ...numbers(canvas.getContext("2d")), player.frame.results[0].numbers.mean_green]);
	}).observe(canvas, { attributes: true, attributeFilter: ["data-frame"] });
	return true;
})()`

// TestRecordingsInABrowser checks that a browser plays a recording, that each picture shown has the number displayed with
// it, also after a jump and a step, and that the page can be used by all, downloads a part and deletes a file.
func TestRecordingsInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: a browser takes its time")
	}
	appliance, base, dir, file := recordedPage(t, 3*time.Second, true)
	ctx, complaints := recordingsPage(t, base, file)
	until, press := untilIn(ctx, t), pressIn(ctx, t)
	row := fmt.Sprintf(`document.getElementById("Play-%s").closest("tr")`, file.File)
	until("what is in the file", row+fmt.Sprintf(`.textContent.includes("%d–%d")`, file.FirstFrame, file.LastFrame))
	until("disk space", fmt.Sprintf(`document.getElementById("folders").textContent.startsWith(%q) &&
		document.getElementById("folders").textContent.includes(" free of ")`, dir))
	waits := `(() => {
		const ask = window.fetch;
		window.fetch = (path, options) => {
			if (!path.includes("/frames?")) return ask(path, options);
			window.fetch = ask;
			return Promise.resolve(new Response("the recording is being read: 40 %", { status: 503, headers: { "Retry-After": "1" } }));
		};
		return true;
	})()`
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](waits)); err != nil {
		t.Fatal(err)
	}
	press("Play-" + file.File)
	until("why it waits", `document.getElementById("trouble-played").textContent === "the recording is being read: 40 %"`)
	until("the first frame", fmt.Sprintf(`document.getElementById("canvas").dataset.frame === "%d"`, file.FirstFrame))
	until("no trouble", `document.getElementById("trouble-played").textContent === ""`)
	press("forth")
	until("the next frame", fmt.Sprintf(`document.getElementById("canvas").dataset.frame === "%d"`, file.FirstFrame+1))
	press("from")
	setsPlaying(ctx, t, true)
	atEnd := fmt.Sprintf(`document.getElementById("canvas").dataset.frame === "%d"`, file.LastFrame) // a busy machine draws fewer
	until("frames", "seen.length >= 60 || "+atEnd)
	setsPlaying(ctx, t, false)
	jump := `(() => {
		const p = document.getElementById("position");
		p.value = p.max / 3;
		p.dispatchEvent(new Event("input"));
		window.before = seen.length;
		return true;
	})()`
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](jump)); err != nil {
		t.Fatal(err)
	}
	until("a frame after a jump", "seen.length > before")
	setsPlaying(ctx, t, true)
	until("100 frames", "seen.length >= 110 || "+atEnd)
	setsPlaying(ctx, t, false)
	press("back")
	press("to")
	agree(ctx, t, file)
	keepPicture(ctx, t, "recordings")
	accessible(ctx, t, "a recording")
	narrow(ctx, t)
	accessible(ctx, t, "a recording, on a phone")
	downloadsPart(ctx, t, press, file)
	press("Delete-" + file.File)
	until("a question", `document.getElementById("sure").open`)
	pressed(ctx, t, `document.querySelector("#sure [value=yes]")`)
	until("the file's end", fmt.Sprintf(`document.getElementById("Play-%s") === null &&
		document.getElementById("said").textContent.endsWith("was deleted.")`, file.File))
	if list := complaints(); len(list) > 0 {
		t.Errorf("the browser complains: %q", list)
	}
	appliance.Stop(t)
	until("the end", `document.getElementById("state").textContent.startsWith("no answer from ")`)
	for list, words := range map[string]string{
		`{ folders: [{ folder: "/x", error: "it hangs" }] }`:                 "/x: it hangs|Files of a disk that does not answer cannot be listed.",
		`{ folders: [{ folder: "/x", free_bytes: 1e9, total_bytes: 2e9 }] }`: "/x: 1.0\u00a0GB free of 2.0\u00a0GB|Nothing has been recorded.",
		`{ folders: [] }`: "|No output is recorded.",
	} {
		shown := `[document.getElementById("folders").textContent, document.getElementById("none").textContent].join("|")`
		if got, err := chromedp.Run(ctx, chromedp.Evaluate[string]("newest = { files: [], ..."+list+" }; show(); "+shown)); err != nil || got != words {
			t.Errorf("%s: %q, want %q, %v", list, got, words, err)
		}
	}
}

// TestRecordingsThousand checks that a browser plays a recording from its beginning to its end, of a stream that is
// stopped, and that 1,000 pictures have the numbers and the results displayed with them.
func TestRecordingsThousand(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	appliance, base, _, file := recordedPage(t, 40*time.Second, false)
	if n := requested(t, "POST", base+"/api/v1/outputs/live/stop"); n != http.StatusOK {
		t.Fatalf("stopping the stream: %d", n)
	}
	ctx, complaints := recordingsPage(t, base, file)
	until, press := untilIn(ctx, t), pressIn(ctx, t)
	press("Play-" + file.File)
	until("the first frame", fmt.Sprintf(`document.getElementById("canvas").dataset.frame === "%d"`, file.FirstFrame))
	for n := 0; n < 1000; { // a slow machine skips some
		press("play")
		until("that it plays", `!document.getElementById("video").ended`)
		until("the end", `document.getElementById("video").ended`)
		until("the last frame", fmt.Sprintf(`document.getElementById("canvas").dataset.frame === "%d"`, file.LastFrame))
		var err error
		if n, err = chromedp.Run(ctx, chromedp.Evaluate[int]("seen.length")); err != nil {
			t.Fatal(err)
		}
	}
	agree(ctx, t, file)
	if list := complaints(); len(list) > 0 {
		t.Errorf("the browser complains: %q", list)
	}
	appliance.Stop(t)
}

// recordingsPage opens the page with the recordings, in which a list of what is drawn, seen, begins.
func recordingsPage(t *testing.T, base string, file web.RecordingFile) (ctx context.Context, complaints func() []string) {
	t.Helper()
	ctx, complaints = browser(t, strings.Replace(programtest.Page(t, base), "/?", "/recordings.html?", 1))
	untilIn(ctx, t)("the list", fmt.Sprintf(`document.getElementById("Play-%s") !== null`, file.File))
	for _, script := range []string{stampReader, readRecorded} {
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script)); err != nil {
			t.Fatal(err)
		}
	}
	return ctx, complaints
}

// untilIn returns a function that waits until a condition is true in a page.
func untilIn(ctx context.Context, t *testing.T) func(what, condition string) {
	return func(what, condition string) {
		t.Helper()
		awaitPage(ctx, t, what, condition)
	}
}

// pressIn returns a function that presses the button with an id in a page.
func pressIn(ctx context.Context, t *testing.T) func(id string) {
	return func(id string) {
		t.Helper()
		pressed(ctx, t, fmt.Sprintf("document.getElementById(%q)", id))
	}
}

// setsPlaying presses the button that plays or pauses, unless the video does already what is wanted: it may have come to its
// end by itself.
func setsPlaying(ctx context.Context, t *testing.T, on bool) {
	t.Helper()
	press := fmt.Sprintf(`(() => {
		const video = document.getElementById("video");
		if ((!video.paused && !video.ended) !== %v) document.getElementById("play").click();
		return true;
	})()`, on)
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](press)); err != nil {
		t.Fatal(err)
	}
}

// downloadsPart downloads the frames from the second one to the one that is shown, and checks their numbers.
func downloadsPart(ctx context.Context, t *testing.T, press func(id string), file web.RecordingFile) {
	t.Helper()
	folder := t.TempDir()
	allowDownloads(ctx, t, folder)
	last, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.getElementById("canvas").dataset.frame`))
	if err != nil {
		t.Fatal(err)
	}
	press("to")
	press("cut")
	path := filepath.Join(folder, fmt.Sprintf("%s-%d-%s.mp4", strings.TrimSuffix(file.File, ".mp4"), file.FirstFrame+1, last))
	programtest.Await(t, path)
	pictures := greyPictures(t, path)
	first, _ := stampsOf(pictures[0])
	end, _ := stampsOf(pictures[len(pictures)-1])
	n, err := strconv.Atoi(last)
	if err != nil || end != n%stampBlocks || first != int(file.FirstFrame+1)%stampBlocks || len(pictures) != n-int(file.FirstFrame) {
		t.Errorf("%d pictures from %d to %d, want from %d to %s", len(pictures), first, end, file.FirstFrame+1, last)
	}
}

// agree compares the numbers of the pictures that were seen, and their brightness, with the numbers in their pixels.
func agree(ctx context.Context, t *testing.T, file web.RecordingFile) {
	t.Helper()
	seen, err := chromedp.Run(ctx, chromedp.Evaluate[[]seenFrame]("seen"))
	if err != nil {
		t.Fatal(err)
	}
	const step = 800. / 1023 * stampBar / stampHeight // by which a further bar from margin to margin makes them brighter
	base, numbers := 0., map[int]bool{}
	for i, s := range seen {
		dark := s[3] - step*float64(bits.OnesCount(uint(s[2])))
		if i == 0 {
			base = dark
		}
		if math.Abs(dark-base) > step/4 {
			t.Fatalf("number %d is frame %.0f with %v, and without its bars %v: that of frame %.0f is %v", i, s[0], s[3], dark, seen[0][0], base)
		}
		numbers[int(s[0])] = true
		if n := int(s[0]); n%stampBlocks != int(s[1]) || n%stampFrames != int(s[2]) || n < int(file.FirstFrame) || n > int(file.LastFrame) {
			t.Fatalf("of %d frames of %d to %d, number %d is drawn as frame %d, its pixels have %v and %v",
				len(seen), file.FirstFrame, file.LastFrame, i, n, s[1], s[2])
		}
	}
	t.Logf("%d pictures of %d frames; the file has %d, %d to %d", len(seen), len(numbers), file.Frames, file.FirstFrame, file.LastFrame)
}

// narrow makes the page as wide as a phone.
func narrow(ctx context.Context, t *testing.T) {
	t.Helper()
	if _, err := chromedp.Run(ctx, chromedp.EmulateViewport(390, 844, chromedp.EmulateScale(2))); err != nil {
		t.Fatal(err)
	}
	awaitPage(ctx, t, "a page as wide as a phone", `document.documentElement.scrollWidth <= 390`)
	keepPicture(ctx, t, "recordings-phone")
}
