// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// browserPage plays each file of a list to its end, and then goes to each of its pictures; of a cut file it goes to the
// last picture. It tells the times and the numbers of the pictures that it had.
const browserPage = `<!doctype html><meta charset="utf-8"><title>a</title><script>
const happens = (v, kind) => new Promise((done, fail) => {
	v.addEventListener(kind, done, { once: true });
	v.addEventListener("error", () => fail(v.error.message), { once: true });
});
const context = Object.assign(document.createElement("canvas"), { width: %[1]d, height: %[2]d }).getContext("2d", { willReadFrequently: true });
function number(v) {
	context.clearRect(0, 0, %[1]d, %[2]d);
	context.drawImage(v, 0, 0, %[1]d, %[2]d);
	if (!context.getImageData(0, 0, 1, 1).data[3]) return -1; // the picture is not there yet
	let n = 0;
	for (let i = 0; i < 16; i++)
		if (context.getImageData(i %% 8 * %[3]d + %[3]d / 2, (i >> 3) * %[3]d + %[3]d / 2, 1, 1).data[1] > 128) n |= 1 << i;
	return n;
}
async function look(name, pictures, cut) {
	const v = document.createElement("video"), played = [], sought = [];
	const seek = async (i) => {
		const there = happens(v, "seeked");
		v.currentTime = (i + 0.5) / 30;
		await there;
		while (number(v) < 0) await new Promise((done) => setTimeout(done, 5)); // the test has a limit
		sought.push([v.currentTime, number(v)]);
	};
	Object.assign(v, { muted: true, src: name });
	document.body.replaceChildren(v);
	await happens(v, "loadeddata");
	if (cut) {
		await seek(pictures - 1);
		return { sought };
	}
	const next = (_, meta) => { played.push([meta.mediaTime, number(v)]); v.requestVideoFrameCallback(next); };
	v.requestVideoFrameCallback(next);
	const ended = happens(v, "ended");
	await v.play();
	await ended;
	const told = { duration: v.duration, end: v.currentTime, frames: v.getVideoPlaybackQuality().totalVideoFrames, played: played.slice() };
	for (let i = 0; i < pictures; i++) await seek(i);
	return { ...told, sought };
}
addEventListener("load", async () => {
	const all = {};
	for (const [name, [pictures, cut]] of Object.entries(%[4]s)) all[name] = await look(name, pictures, cut).catch((e) => ({ error: String(e) }));
	await fetch("told", { method: "POST", body: JSON.stringify(all) });
});
</script><body></body>`

// A browserFile is a file, and the numbers of its pictures.
type browserFile struct {
	b           []byte
	first, last int
	cut         bool // last is the last picture of a whole fragment
}

// browserSaw holds the page's report of a file.
type browserSaw struct {
	Error          string
	Duration, End  float64 // in seconds
	Frames         int     // that it has decoded while it played
	Played, Sought [][2]float64
}

// firefoxSettings keep Firefox from asking the Internet and new users.
const firefoxSettings = `user_pref("media.autoplay.default", 0); user_pref("app.update.enabled", false); user_pref("browser.aboutwelcome.enabled", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false); user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false); user_pref("media.gmp-manager.updateEnabled", false); user_pref("app.normandy.enabled", false);
user_pref("browser.safebrowsing.update.enabled", false); user_pref("services.settings.server", "data:,"); user_pref("extensions.update.enabled", false);`

// A browser is a program that shows a page.
type browser struct {
	name, program string
	arguments     func(home string) []string
}

var (
	firefox  = browser{"Firefox", "firefox-esr", func(home string) []string { return []string{"--headless", "--no-remote", "--profile", home} }}
	chromium = browser{"Chromium", "chromium", func(home string) []string {
		return []string{"--headless", "--no-sandbox", "--disable-gpu", "--autoplay-policy=no-user-gesture-required", "--user-data-dir=" + home}
	}}
)

// open has the browser show a page until the test ends.
func (x browser) open(t *testing.T, page string) {
	t.Helper()
	if _, err := exec.LookPath(x.program); err != nil {
		t.Skipf("NEEDS %s, which make setup-test installs", x.program)
	}
	home, err := os.MkdirTemp("", "browser-") // not the test's, which fails if the browser's last processes write while it is removed
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.WriteFile(filepath.Join(home, "user.js"), []byte(firefoxSettings), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, x.program, append(x.arguments(home), page)...)
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), "HOME="+home), &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was ended
	})
}

// look returns what the browser tells about files.
func (x browser) look(t *testing.T, all map[string]browserFile) map[string]browserSaw {
	t.Helper()
	counts, told := map[string][2]any{}, make(chan map[string]browserSaw, 1)
	for name, f := range all {
		counts[name] = [2]any{f.last - f.first + 1, f.cut}
	}
	list, err := json.Marshal(counts)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path[1:]
		if f, is := all[name]; is {
			w.Header().Set("Content-Type", "video/mp4")
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.b))
			return
		}
		if name == "told" {
			got := map[string]browserSaw{}
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Error(err)
			}
			told <- got
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, browserPage, width, height, side, list)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	x.open(t, server.URL)
	select {
	case got := <-told:
		return got
	case <-ctx.Done():
		t.Fatalf("%s tells nothing", x.name)
	}
	return nil
}

// TestFirefoxPlaysFiles checks that Firefox plays a file, whole and while it grows, and spans of it, to the end, that each
// picture has its time, and that it finds each picture.
func TestFirefoxPlaysFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: a browser takes its time")
	}
	track, samples := pictures(t, H264, 60)
	b, ends := write(t, track, samples, 7)
	f := read(t, b)
	files := map[string]browserFile{"whole": {b: b, last: 59}, "growing": {b: b[:ends[5]], last: 34}}
	for from, first := range map[int]int{20: 20, 13: 10} { // Firefox ignores edit lists: it shows the pictures from the key picture on
		s, err := f.Span(from, 50)
		if err != nil {
			t.Fatal(err)
		}
		files[fmt.Sprintf("from %d", from)] = browserFile{b: all(t, s), first: first, last: 49}
	}
	for name, got := range firefox.look(t, files) {
		f := files[name]
		n := f.last - f.first + 1
		length := float64(n) / 30
		if got.Error != "" || math.Abs(got.Duration-length) > 0.05 || math.Abs(got.End-length) > 0.05 || len(got.Sought) != n || len(got.Played) == 0 {
			t.Errorf("%s: %+v, want %d pictures in %v s", name, got, n, length)
			continue
		}
		for i, x := range got.Sought {
			if int(x[1]) != f.first+i {
				t.Errorf("%s: at %v s there is picture %v, want %d", name, x[0], x[1], f.first+i)
			}
		}
		var off []float64
		for _, x := range got.Played {
			off = append(off, math.Abs(math.Round(x[0]*30)-x[1]+float64(f.first)))
		}
		// What a page can draw is not always the picture to which the time belongs, and a slow machine draws some late.
		if slices.Sort(off); off[len(off)/2] > 5 {
			t.Errorf("%s: while it plays, pictures and times differ by %v pictures", name, off)
		}
		t.Logf("%s: %d pictures, %d decoded in %.2f s, %d shown", name, n, got.Frames, got.End, len(got.Played))
	}
}

// TestBrowsersOpenCutFiles checks that browsers open what the page plays of a file of H.264 that was cut at a random byte,
// the span of its whole fragments, and find the last picture. The cut file itself is opened by Firefox, but not always by
// Chromium, before record repair or the next start has given it its end.
func TestBrowsersOpenCutFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: a browser takes its time")
	}
	_, paths, wholes := cutFiles(t, H264)
	n := 16
	if long {
		n = cuts
	}
	files := map[string]browserFile{}
	for i, path := range paths[:n] {
		if wholes[i] == 0 {
			continue // there is no picture
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := read(t, b)
		s, err := f.Span(0, f.Len())
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = browserFile{b: all(t, s), last: wholes[i] - 1, cut: true}
	}
	for _, x := range []browser{firefox, chromium} {
		t.Run(x.name, func(t *testing.T) {
			got := x.look(t, files)
			for name, f := range files {
				if saw := got[name]; saw.Error != "" || len(saw.Sought) != 1 || int(saw.Sought[0][1]) != f.last {
					t.Errorf("%s with %d bytes: %+v, want picture %d", name, len(f.b), saw, f.last)
				}
			}
			t.Logf("%d files", len(files))
		})
	}
}
