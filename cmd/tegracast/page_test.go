// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image/jpeg"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cmd/tegracast/web"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

var screenshots = flag.String("screenshots", "", "folder in which TestPageInABrowser keeps pictures of the page")

// shown starts an appliance with everything that the page shows, and returns the page's address.
func shown(t *testing.T, width, height int) (appliance *programtest.Process, base, recordings string) {
	t.Helper()
	p := rtptest.EvenPorts(t, 3)
	recordings = t.TempDir()
	text := fmt.Sprintf(`
web: {listen: "127.0.0.1:%d"}
clock: {source: system}
sources:
  - {name: camera, model: {width: %d, height: %d, rate: 10}}
  - {name: second, model: {width: 320, height: 240, rate: 10}}
isp:
  - {name: isp, from: camera, workers: 1, auto: {white_balance: {}}}
  - {name: small, from: second, workers: 1}
outputs:
  - {name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
  - {name: jpeg, rate: 5, scale: half, rtp: {payload: jpeg, destinations: ["127.0.0.1:%d"]}}
  - {name: beside, from: small, rtp: {payload: jpeg}}
  - {name: kept, from: camera, policy: block, record: {directory: %s, trigger: {before: 500ms, after: 500ms}}}
`, p[0], width, height, p[1], p[2], recordings)
	appliance = programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "config.yaml", text), "--sdp-dir", t.TempDir())
	base = fmt.Sprintf("http://127.0.0.1:%d", p[0])
	if status, body := fetch(t, base+"/readyz"); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	return appliance, base, recordings
}

// TestPictures checks that a picture is one of the output's, and is only made while there are viewers.
func TestPictures(t *testing.T) {
	t.Parallel()
	appliance, base, _ := shown(t, 320, 240)
	for name, width := range map[string]int{"raw": 320, "jpeg": 160} {
		r, err := programtest.Client.Get(base + "/" + name + ".jpg")
		if err != nil {
			t.Fatal(err)
		}
		picture, err := jpeg.Decode(r.Body)
		r.Body.Close()
		if err != nil || picture.Bounds().Dx() != width {
			t.Fatalf("%s: %v %v", name, r.Status, err)
		}
	}
	if status, text := fetch(t, base+"/raw.sdp"); status != http.StatusOK || !strings.HasPrefix(text, "v=0\r\n") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := fetch(t, base+"/kept.jpg"); status != http.StatusConflict {
		t.Errorf("the samples of the camera are shown: %d %.100s", status, text)
	}
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		_, text := fetch(t, base+"/api/v1/status")
		if !strings.Contains(text, " view\"") {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("nobody looks, and pictures are made: %s", text)
		}
	}
	appliance.Stop(t)
}

// TestPageInABrowser checks that the page shows moving pictures of the selected output and counts frames, and that its
// button triggers a recording.
func TestPageInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: a browser takes its time")
	}
	state := t.TempDir()
	t.Setenv("STATE_DIRECTORY", state)
	appliance, base, recordings := shown(t, 1280, 720)
	ctx, complaints := browser(t, programtest.Page(t, base))
	until := func(what, condition string) {
		t.Helper()
		awaitPage(ctx, t, what, condition)
	}
	until("the state", `document.getElementById("state").textContent.startsWith("streaming")`)
	pressed(ctx, t, `[...document.querySelectorAll("#choice button")].find((b) => b.textContent === "raw")`)
	until("a picture", `document.getElementById("picture").naturalWidth === 640`)
	until("a frame rate", someRate)
	// A canvas keeps its content: it differs after a moment if pictures move.
	until("moving pictures", `(() => {
		const i = document.getElementById("picture"), c = document.createElement("canvas");
		c.width = i.naturalWidth; c.height = i.naturalHeight;
		c.getContext("2d").drawImage(i, 0, 0);
		const now = c.toDataURL(), was = window.was;
		window.was = was || now;
		return was !== undefined && was !== now;
	})()`)
	keepPicture(ctx, t, "page")
	accessible(ctx, t, "light")
	pressed(ctx, t, `[...document.querySelectorAll("#choice button")].find((b) => b.textContent === "jpeg")`)
	until("the other output", `document.getElementById("picture").alt.endsWith("jpeg") &&
		document.querySelector("#choice [aria-pressed=true]").textContent === "jpeg"`)
	p := pilot{t, ctx}
	p.press("trigger-kept")
	until("an event", `[...document.querySelectorAll("#events li")].some((e) => e.textContent.includes("rtp: sending"))`)
	until("the trigger", `document.getElementById("outputs").textContent.includes("triggered at")`)
	p.recorded(recordings, 1)
	p.sees("host", hostOf(t))
	p.seesClocks()
	p.switches("raw")
	p.switches("kept")
	p.restarts("raw")
	p.seesAll()
	p.sends()
	p.marks()
	p.downloads("jpeg", 1280)
	p.sets(base)
	p.edits(state)
	p.hangs(appliance)
	p.hasTabs(base)
	p.losesWorker()
	if _, err := chromedp.Run(ctx, chromedp.EmulateViewport(390, 844, chromedp.EmulateScale(2))); err != nil {
		t.Fatal(err)
	}
	until("a page as wide as a phone", `document.documentElement.scrollWidth <= 390`)
	keepPicture(ctx, t, "phone")
	dark := chromedp.Func(func(ctx context.Context, p *chromedp.Target) error {
		_, err := cdp.Call(ctx, p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
		})
		return err
	})
	if _, err := chromedp.Run(ctx, dark); err != nil {
		t.Fatal(err)
	}
	keepPicture(ctx, t, "phone-dark")
	accessible(ctx, t, "dark, on a phone")
	if _, err := chromedp.Run(ctx, chromedp.EmulateViewport(1280, 800)); err != nil {
		t.Fatal(err)
	}
	keepPicture(ctx, t, "page-dark")
	if list := complaints(); len(list) > 0 {
		t.Errorf("the browser complains: %q", list)
	}
	appliance.Stop(t)
	until("the end", `document.getElementById("state").textContent.startsWith("no answer from ")`)
}

// browser opens a page in a browser. complaints returns the browser's errors and warnings.
func browser(t testing.TB, address string) (ctx context.Context, complaints func() []string) {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.WSURLReadTimeout(2*time.Minute), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 800))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	var mu sync.Mutex
	var list []string
	if err := chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			list = append(list, e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			list = append(list, fmt.Sprint(e.Type))
		}
	}); err != nil {
		t.Fatalf("%v: make setup-test installs chromium", err)
	}
	if _, err := chromedp.Run(ctx, chromedp.Navigate(address)); err != nil {
		t.Fatal(err)
	}
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

// awaitPage waits until a condition is true in the page.
func awaitPage(ctx context.Context, t testing.TB, what, condition string) {
	t.Helper()
	poll := chromedp.Poll[bool](condition, chromedp.WithPollingTimeout(time.Minute), chromedp.WithPollingInterval(100*time.Millisecond))
	if _, err := chromedp.Run(ctx, poll); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// keepPicture saves a picture of the page if that is requested.
func keepPicture(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	_, err := chromedp.Run(ctx, chromedp.Evaluate[int](`scrollTo(0, 0); 0`))
	var png []byte
	if err == nil {
		png, err = chromedp.Run(ctx, chromedp.CaptureScreenshot())
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// accessible checks the page with axe-core for obstacles to users of screen readers and keyboards, and to users with weak
// sight (WCAG 2.2 A and AA).
func accessible(ctx context.Context, t *testing.T, how string) {
	t.Helper()
	axe, err := os.ReadFile("testdata/axe/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: make setup-test installs axe-core", err)
	}
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[float64](string(axe)+";0")); err != nil {
		t.Fatal(err)
	}
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`axe.run().then((r) => r.violations.filter((v) => v.impact !== "minor")
		.map((v) => v.impact + ": " + v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html).join(" ")))`, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Errorf("%s: %s", how, v)
	}
}

// TestStatusTells checks that the status tells, without a break, that nobody listens at a destination, until somebody does,
// and what a recording does.
func TestStatusTells(t *testing.T) {
	t.Parallel()
	appliance, base, recordings := shown(t, 320, 240)
	var s web.Status
	raw := func() web.Output {
		t.Helper()
		s = web.Status{}
		_, text := fetch(t, base+"/api/v1/status")
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		for _, o := range s.Outputs {
			if o.Name == "kept" && (o.Recording == nil || !o.Recording.Waiting || o.Recording.Folder != recordings || o.Recording.Free == nil) {
				t.Errorf("the recording: %+v", o.Recording)
			}
		}
		return s.Outputs[slices.IndexFunc(s.Outputs, func(o web.Output) bool { return o.Name == "raw" })]
	}
	to := raw().To[0]
	until := func(what string, true func() bool) {
		t.Helper()
		for began := time.Now(); !true(); time.Sleep(20 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("not %s: %+v", what, raw())
			}
		}
	}
	until("told", func() bool { return raw().Troubles[to] == send.NobodyListens })
	sent := func() uint64 {
		return s.Parts[slices.IndexFunc(s.Parts, func(p web.Part) bool { return p.Name == "raw" })].Frames
	}
	for frames := sent(); sent() < frames+20; time.Sleep(20 * time.Millisecond) {
		if o := raw(); o.Troubles[to] != send.NobodyListens {
			t.Fatalf("%+v", o)
		}
	}
	receiver, err := net.ListenPacket("udp4", to)
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	until("over", func() bool { return len(raw().Troubles) == 0 })
	appliance.Stop(t)
}
