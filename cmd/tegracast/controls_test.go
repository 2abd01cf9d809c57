// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	_ "image/jpeg"
	_ "image/png"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// A pilot uses the page's controls.
type pilot struct {
	*testing.T
	ctx context.Context
}

// press presses the button with that id.
func (p pilot) press(id string) {
	p.Helper()
	pressed(p.ctx, p, fmt.Sprintf(`document.getElementById(%q)`, id))
}

// pressed presses a button once it exists and is enabled. The page disables buttons while a slow machine does not answer.
func pressed(ctx context.Context, t testing.TB, button string) {
	t.Helper()
	awaitPage(ctx, t, button, fmt.Sprintf(`(() => {
		const b = %s;
		if (!b || b.disabled || document.querySelector("main").inert) return false;
		b.focus();
		b.click();
		return true;
	})()`, button))
}

// views sets the size of the browser's window.
func (p pilot) views(width, height int64) {
	p.Helper()
	if _, err := chromedp.Run(p.ctx, chromedp.EmulateViewport(width, height)); err != nil {
		p.Fatal(err)
	}
}

// sees waits until an element contains a text.
func (p pilot) sees(id, text string) {
	p.Helper()
	awaitPage(p.ctx, p, id+": "+text, fmt.Sprintf(`document.getElementById(%q).textContent.includes(%q)`, id, text))
}

// switches stops an output by its button and starts it again. The page asks before it stops a recording. The pressed
// button keeps the focus.
func (p pilot) switches(name string) {
	p.Helper()
	p.press("switch-" + name)
	if name == "kept" {
		p.sees("question", "Nothing will be recorded until you start it again.")
		accessible(p.ctx, p.T, "with a question")
		p.press("yes")
	}
	p.sees("is-"+name, "stopped")
	p.sees("said-"+name, "stopped at")
	awaitPage(p.ctx, p, "the button to start", fmt.Sprintf(`document.activeElement.id === "switch-%[1]s" &&
		document.getElementById("switch-%[1]s").textContent.startsWith("Start")`, name))
	p.press("switch-" + name)
	p.sees("said-"+name, "started at")
	awaitPage(p.ctx, p, "the button to stop", fmt.Sprintf(`document.getElementById("switch-%s").textContent.startsWith("Stop")`, name))
}

// restarts checks that the output that is shown can be stopped and started: the page says that it is stopped, and then
// shows it again.
func (p pilot) restarts(name string) {
	p.Helper()
	pressed(p.ctx, p, fmt.Sprintf(`[...document.querySelectorAll("#choice button")].find((b) => b.textContent === %q)`, name))
	shown := fmt.Sprintf(`!document.getElementById("picture").hidden && document.getElementById("caption").textContent.startsWith("%[1]s, frame ") &&
		document.querySelector("#choice [aria-pressed=true]").textContent === %[1]q`, name)
	awaitPage(p.ctx, p, "the output", shown)
	p.press("switch-" + name)
	p.sees("caption", name+" is stopped")
	awaitPage(p.ctx, p, "no picture", `document.getElementById("picture").hidden && document.getElementById("full").hidden`)
	p.press("switch-" + name)
	awaitPage(p.ctx, p, "the output again", shown)
}

// recorded waits until a folder has n recordings.
func (p pilot) recorded(folder string, n int) {
	p.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		list, _ := filepath.Glob(filepath.Join(folder, "*.mcap"))
		if len(list) == n {
			return
		}
		if time.Since(began) > time.Minute {
			p.Fatalf("there are the recordings %q, and not %d", list, n)
		}
	}
}

// downloads follows the links to an output's snapshots, and checks the files.
func (p pilot) downloads(name string, width int) {
	p.Helper()
	folder := p.TempDir()
	allowDownloads(p.ctx, p, folder)
	for kind, end := range map[string]string{"JPEG": "jpg", "PNG": "png", "DNG": "dng"} {
		p.press("save-" + kind + "-" + name)
		var file []byte
		for began := time.Now(); len(file) == 0; time.Sleep(50 * time.Millisecond) {
			if list, _ := filepath.Glob(filepath.Join(folder, "*."+end)); len(list) == 1 {
				file, _ = os.ReadFile(list[0])
			}
			if time.Since(began) > time.Minute {
				p.Fatalf("%s: no file was downloaded", kind)
			}
		}
		if kind == "DNG" {
			if !bytes.HasPrefix(file, []byte("II*\x00")) {
				p.Errorf("the DNG begins with %q", file[:8])
			}
			continue
		}
		picture, format, err := image.DecodeConfig(bytes.NewReader(file))
		if err != nil || format != strings.ToLower(kind) || format == "png" && picture.Width != width {
			p.Errorf("%s: %s %v %v", kind, format, picture, err)
		}
	}
}

// allowDownloads makes the browser save files in a folder.
func allowDownloads(ctx context.Context, t testing.TB, folder string) {
	t.Helper()
	allow := chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
			Behavior: cdpbrowser.SetDownloadBehaviorBehaviorAllow, DownloadPath: folder,
		})
		return err
	})
	if _, err := chromedp.Run(ctx, allow); err != nil {
		t.Fatal(err)
	}
}

// watchLoads records whether buttons are enabled while the text loads.
const watchLoads = `(() => {
	const real = window.fetch;
	window.fetch = (path, options) => {
		if (path === "api/v1/config" && !options) window.pressable = !document.getElementById("apply").disabled;
		return real(path, options);
	};
	return true;
})()`

// edits opens the editor, checks that a mistake is shown by its line, applies a change, which must be stored in the
// folder state, and resets it.
func (p pilot) edits(state string) {
	p.Helper()
	if _, err := chromedp.Run(p.ctx, chromedp.Click("#editor > summary")); err != nil {
		p.Fatal(err)
	}
	awaitPage(p.ctx, p, "the text", `document.getElementById("text").value.includes("name: jpeg, rate: 5")`)
	accessible(p.ctx, p.T, "with the editor open")
	if *screenshots != "" {
		p.views(1280, 1720)
		keepPicture(p.ctx, p.T, "controls")
		p.views(1280, 800)
	}
	replace := func(old, new string) {
		p.Helper()
		script := fmt.Sprintf(`(() => { const t = document.getElementById("text"); t.value = t.value.replace(%q, %q); return true; })()`, old, new)
		if _, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](script)); err != nil {
			p.Fatal(err)
		}
	}
	kept := filepath.Join(state, "tegracast.yaml")
	replace("rate: 5,", "rate: many,")
	for button, verdict := range map[string]string{"check": "The text has 1 mistake.", "apply": "Not applied: 1 mistake."} {
		p.press(button)
		p.sees("mistakes", "outputs[1].rate")
		p.sees("verdict", verdict)
	}
	if _, err := chromedp.Run(p.ctx, chromedp.Click("#mistakes button")); err != nil {
		p.Fatal(err)
	}
	awaitPage(p.ctx, p, "the line of the mistake", `(() => { const t = document.getElementById("text");
		return document.activeElement === t && t.value.slice(t.selectionStart, t.selectionEnd).includes("rate: many"); })()`)
	replace("rate: many,", "rate: 4,")
	p.press("check")
	p.sees("verdict", "No mistakes found.")
	if _, err := os.Stat(kept); err == nil {
		p.Error("a check has kept the text")
	}
	if _, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](watchLoads)); err != nil {
		p.Fatal(err)
	}
	p.press("apply")
	p.sees("verdict", "Changed: outputs[jpeg].rate")
	p.sees("origin", "was changed on this page")
	awaitPage(p.ctx, p, "buttons that nobody can press while the text is loaded", "window.pressable === false")
	if text, err := os.ReadFile(kept); err != nil || !strings.Contains(string(text), "rate: 4,") {
		p.Errorf("%s %v", text, err)
	}
	p.press("reset")
	p.sees("origin", "This is ")
	if _, err := os.Stat(kept); err == nil {
		p.Error("it is still kept")
	}
	replace("rate: 5,", "rate: nothing,")
	const confirms = `(() => { window.confirm = (text) => (window.confirmed = text) !== ""; return edited(); })()`
	if unsaved, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](confirms)); err != nil || !unsaved {
		p.Errorf("a changed text is taken for an unchanged one: %v", err)
	}
	p.press("again")
	awaitPage(p.ctx, p, "the question whether the text may be lost", `(window.confirmed || "").includes("changes")`)
	p.sees("verdict", "Loaded.")
	awaitPage(p.ctx, p, "the text again", `document.getElementById("text").value.includes("rate: 5,")`)
	if _, err := chromedp.Run(p.ctx, chromedp.Click("#editor > summary")); err != nil {
		p.Fatal(err)
	}
}

// sets moves the sliders by the keyboard: the exposure, which no loop controls, and a gain of the white balance, which a
// loop controls before and afterwards.
func (p pilot) sets(base string) {
	p.Helper()
	holds := func(what string) {
		p.Helper()
		for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			_, text := fetch(p, base+"/api/v1/status")
			if strings.Contains(text, what) {
				return
			}
			if time.Since(began) > time.Minute {
				p.Fatalf("the status has not %s: %s", what, text)
			}
		}
	}
	keys := func(id, keys string) {
		p.Helper()
		if _, err := chromedp.Run(p.ctx, chromedp.SendKeys("#"+id, keys)); err != nil {
			p.Fatalf("%s: %v", id, err)
		}
	}
	keys("exposure-camera-exposure_us", kb.Home)
	p.sees("set", "set at")
	holds(`"exposure_us":100,`)
	keys("balance-isp-red", kb.End)
	holds(`"red":8,`)
	awaitPage(p.ctx, p, "no automatic balance", `!document.getElementById("balance-isp-auto").checked`)
	p.press("balance-isp-auto")
	awaitPage(p.ctx, p, "an automatic balance", `document.getElementById("balance-isp-auto").checked`)
	holds(`"has_auto":true,"auto":true}`)
	p.slides()
	light := `fetch("api/v1/sources/camera/exposure", { method: "PUT", body: '{"exposure_us": 10000}' }).then((r) => r.ok)`
	if ok, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](light, chromedp.EvalAwaitPromise)); err != nil || !ok {
		p.Error(err)
	}
	awaitPage(p.ctx, p, "the slider to follow", `document.querySelector("#exposure-camera-exposure_us + output").textContent === "10.00 ms"`)
}

// slides holds sliders. A held slider must stay where it is whatever changes meanwhile. It is set alone if possible, and
// otherwise together with the others' current values.
func (p pilot) slides() {
	p.Helper()
	held := `(() => {
		const sent = [], move = (id, key, to, states) => {
			const s = setters.get(id), i = s.inputs[key].input;
			const was = s.send, under = s.sending, seen = [];
			s.sending = 0; // a request may still be under way
			s.send = (x) => sent.push(x);
			i.value = to;
			i.dispatchEvent(new Event("input"));
			for (const state of states) { s.show({ ...s.state, ...state }); seen.push(i.value); }
			i.dispatchEvent(new Event("change"));
			s.send = was;
			s.sending = under;
			return seen.every((v) => v === String(to));
		};
		const stays = move("balance-isp", "red", 3, [{ red: 1, blue: 9, auto: true }]) && move("exposure-camera", "gain", 2, [{ gain: 1 }]);
		return stays + JSON.stringify(sent);
	})()`
	const want = `true[{"red":3,"blue":9},{"gain":2}]`
	if got, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](held)); err != nil || got != want {
		p.Errorf("%s %v, want %s", got, err, want)
	}
}

// hangs stops the appliance's answers for a while. The page must say so, in its title too, dim its
// content, and let nobody use it. The focus returns with the answers.
func (p pilot) hangs(appliance *programtest.Process) {
	p.Helper()
	awaitPage(p.ctx, p, "the output with its buttons", `(() => {
		const is = document.getElementById("is-jpeg"), save = document.getElementById("save-JPEG-jpeg");
		if (!is || !is.textContent.startsWith("running") || !save) return false;
		save.focus();
		return document.activeElement === save;
	})()`)
	if err := appliance.Process.Signal(syscall.SIGSTOP); err != nil {
		p.Fatal(err)
	}
	const muted = `document.querySelector("main").inert && getComputedStyle(document.querySelector("main")).opacity < 1 &&
		document.title.startsWith("no answer") && document.getElementById("is-jpeg").textContent.startsWith("was ")`
	awaitPage(p.ctx, p, "nobody answers", `/^no answer from the appliance for \d+ s/.test(document.getElementById("state").textContent) &&
		document.getElementById("state").className === "bad" && `+muted)
	if err := appliance.Process.Signal(syscall.SIGCONT); err != nil {
		p.Fatal(err)
	}
	awaitPage(p.ctx, p, "it answers again", `document.getElementById("state").textContent.startsWith("streaming") && !document.querySelector("main").inert &&
		!document.getElementById("is-jpeg").textContent.startsWith("was ") && document.activeElement.id === "save-JPEG-jpeg"`)
}

// losesWorker ends the shared worker that has the feed. Numbers must move on in the tab.
func (p pilot) losesWorker() {
	p.Helper()
	browser := chromedp.FromContext(p.ctx).Browser
	all, err := cdp.Call(p.ctx, browser, target.GetTargets, target.GetTargetsParams{Filter: target.Filter{{Type: "shared_worker"}}})
	if err != nil || len(all.TargetInfos) != 1 {
		p.Fatalf("shared workers: %+v %v", all, err)
	}
	if _, err := cdp.Call(p.ctx, browser, target.CloseTarget, target.CloseTargetParams{TargetID: all.TargetInfos[0].TargetID}); err != nil {
		p.Fatal(err)
	}
	awaitPage(p.ctx, p, "the end of the worker", `document.getElementById("state").textContent.startsWith("no answer from ")`)
	awaitPage(p.ctx, p, "a feed without it", `document.getElementById("state").textContent.startsWith("streaming")`)
}

// someRate is true when the page shows a frame rate.
const someRate = `parseFloat((document.querySelector("#parts dd") || {}).textContent) > 1`

// hostOf returns the name of this machine.
func hostOf(t testing.TB) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// seesAll opens the wall, which has a picture of each source, and goes from there to the second one.
func (p pilot) seesAll() {
	p.Helper()
	pressed(p.ctx, p, `[...document.querySelectorAll("#choice button")].find((b) => b.textContent === "All cameras")`)
	awaitPage(p.ctx, p, "a picture of each source", `document.querySelectorAll("#wall img").length === 2 &&
		[...document.querySelectorAll("#wall img")].every((i) => i.naturalWidth > 0)`)
	accessible(p.ctx, p.T, "with the wall")
	pressed(p.ctx, p, `document.querySelectorAll("#wall button")[1]`)
	awaitPage(p.ctx, p, "the second source", `document.getElementById("wall").hidden && document.getElementById("picture").naturalWidth === 320 &&
		document.getElementById("caption").textContent.startsWith("beside, frame ")`)
	pressed(p.ctx, p, `[...document.querySelectorAll("#choice button")].find((b) => b.textContent === "jpeg")`)
}

// seesClocks reads what the cards' clocks follow, and how the page says it when there is trouble.
func (p pilot) seesClocks() {
	p.Helper()
	awaitPage(p.ctx, p, "the clocks", `!document.getElementById("cards").hidden &&
		[...document.querySelectorAll("#clocks li")].map((e) => e.textContent.split(":")[0]).join() === "camera follows system,second follows system" &&
		/: (locked|slewing), offset -?[0-9,]+ ns, rate -?[0-9]+ ppb$/.test(document.querySelector("#clocks li").textContent)`)
	const says = `showClocks([{ card: "/dev/fpga", source: "phc:/dev/ptp0", state: "holdover", rate_ppb: -47049 }, ` +
		`{ card: "a", source: "system", state: "locked", rate_ppb: 40, offset_ns: 0 }]); ` +
		`[...document.querySelectorAll("#clocks li")].map((e) => e.textContent + (e.className && " is " + e.className)).join("|")`
	const want = "/dev/fpga follows phc:/dev/ptp0: holdover, rate -47049 ppb is bad|a follows system: locked, offset 0 ns, rate 40 ppb"
	if got, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](says)); err != nil || got != want {
		p.Errorf("%q, want %q, %v", got, want, err)
	}
}

// sends adds a destination by the form of an output, and removes it.
func (p pilot) sends() {
	p.Helper()
	const to = "127.0.0.1:10"
	for _, wrong := range []string{"nowhere", to} {
		if _, err := chromedp.Run(p.ctx, chromedp.SetValue("#to-raw", wrong)); err != nil {
			p.Fatal(err)
		}
		pressed(p.ctx, p, `document.querySelector("#to-raw + button")`)
		p.sees(map[string]string{"nowhere": "wrong-raw", to: "said-raw"}[wrong], map[string]string{"nowhere": "nowhere", to: "added at"}[wrong])
	}
	p.press("remove-" + to + "-raw")
	p.sees("said-raw", "removed at")
	awaitPage(p.ctx, p, "no button to remove, and the focus beside it", `!document.getElementById("remove-`+to+`-raw") &&
		document.activeElement.textContent.startsWith("raw ")`)
}

// marks lets an output lose frames, as the page sees it, and marks the losses as seen.
func (p pilot) marks() {
	p.Helper()
	const loses = `(() => {
		const real = showState;
		window.late = 7;
		showState = (s) => real({ ...s, parts: s.parts.map((x) => x.name === "raw" ? { ...x, lost: late, losses: { late }, lost_at: s.time } : { ...x, lost: 0 }) });
		window.honest = () => { showState = real; };
		return true;
	})()`
	if _, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](loses)); err != nil {
		p.Fatal(err)
	}
	p.sees("lost", "7")
	p.sees("since", " frames since ")
	p.sees("troubles", "raw lost 7 frames since ")
	p.sees("troubles", "(too late)")
	accessible(p.ctx, p.T, "with losses")
	p.press("seen")
	awaitPage(p.ctx, p, "no losses but those that were seen", `document.getElementById("seen").hidden &&
		!document.getElementById("troubles").textContent.includes("lost") && document.getElementById("lost").textContent === "none" &&
		document.activeElement.id.endsWith("-title")`)
	if _, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](`window.late = 9; true`)); err != nil {
		p.Fatal(err)
	}
	p.sees("troubles", "raw lost 2 frames since you acknowledged losses at ")
	p.press("seen")
	if _, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("honest(); true")); err != nil {
		p.Fatal(err)
	}
}

// hasTabs opens more tabs than a browser has connections to a host. Numbers and pictures must move in each.
func (p pilot) hasTabs(base string) {
	p.Helper()
	for i := range 7 {
		tab, cancel := chromedp.NewContext(p.ctx)
		defer cancel()
		if _, err := chromedp.Run(tab, chromedp.Navigate(base+"/")); err != nil {
			p.Fatal(err)
		}
		awaitPage(tab, p, fmt.Sprintf("pictures in tab %d", i+2), `[...document.querySelectorAll("#wall img")].some((i) => i.naturalWidth > 0)`)
		awaitPage(tab, p, fmt.Sprintf("numbers in tab %d", i+2), someRate)
	}
	for _, what := range []string{"a picture", "another picture"} {
		awaitPage(p.ctx, p, what+" in the first tab", `(() => {
			const was = window.lastPicture;
			window.lastPicture = document.getElementById("picture").src;
			return was !== undefined && was !== window.lastPicture;
		})()`)
	}
}
