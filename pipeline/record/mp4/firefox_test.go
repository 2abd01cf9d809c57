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
	"syscall"
	"testing"
	"time"
)

// firefoxPage plays each file of a list to its end, and then goes to each of its pictures. It tells the times and the
// numbers of the pictures that it had.
const firefoxPage = `<!doctype html><meta charset="utf-8"><title>a</title><script>
const happens = (v, kind) => new Promise((done, fail) => {
	v.addEventListener(kind, done, { once: true });
	v.addEventListener("error", () => fail(v.error.message), { once: true });
});
const context = Object.assign(document.createElement("canvas"), { width: %[1]d, height: %[2]d }).getContext("2d", { willReadFrequently: true });
function number(v) {
	context.drawImage(v, 0, 0, %[1]d, %[2]d);
	let n = 0;
	for (let i = 0; i < 16; i++)
		if (context.getImageData(i %% 8 * %[3]d + %[3]d / 2, (i >> 3) * %[3]d + %[3]d / 2, 1, 1).data[1] > 128) n |= 1 << i;
	return n;
}
async function look(name, pictures) {
	const v = document.createElement("video"), played = [], sought = [];
	Object.assign(v, { muted: true, src: name });
	document.body.replaceChildren(v);
	await happens(v, "loadeddata");
	const next = (_, meta) => { played.push([meta.mediaTime, number(v)]); v.requestVideoFrameCallback(next); };
	v.requestVideoFrameCallback(next);
	const ended = happens(v, "ended");
	await v.play();
	await ended;
	const told = { duration: v.duration, end: v.currentTime, frames: v.getVideoPlaybackQuality().totalVideoFrames, played: played.slice() };
	for (let i = 0; i < pictures; i++) {
		const there = happens(v, "seeked");
		v.currentTime = (i + 0.5) / 30;
		await there;
		sought.push([v.currentTime, number(v)]);
	}
	return { ...told, sought };
}
addEventListener("load", async () => {
	const all = {};
	for (const [name, pictures] of Object.entries(%[4]s)) all[name] = await look(name, pictures).catch((e) => ({ error: String(e) }));
	await fetch("told", { method: "POST", body: JSON.stringify(all) });
});
</script><body></body>`

// A firefoxFile is a file, and the numbers of its pictures.
type firefoxFile struct {
	b           []byte
	first, last int
}

// firefoxSaw holds the page's report of a file.
type firefoxSaw struct {
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

// openFirefox has Firefox show a page until the test ends.
func openFirefox(t *testing.T, page string) {
	t.Helper()
	if _, err := exec.LookPath("firefox-esr"); err != nil {
		t.Skip("NEEDS firefox-esr, which make setup-test installs")
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "user.js"), []byte(firefoxSettings), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "firefox-esr", "--headless", "--no-remote", "--profile", home, page)
	cmd.Env, cmd.WaitDelay = append(os.Environ(), "HOME="+home), 10*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was ended
	})
}

// byFirefox returns what Firefox tells about files.
func byFirefox(t *testing.T, all map[string]firefoxFile) map[string]firefoxSaw {
	t.Helper()
	counts, told := map[string]int{}, make(chan map[string]firefoxSaw, 1)
	for name, f := range all {
		counts[name] = f.last - f.first + 1
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
			got := map[string]firefoxSaw{}
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Error(err)
			}
			told <- got
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, firefoxPage, width, height, side, list)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	openFirefox(t, server.URL)
	select {
	case got := <-told:
		return got
	case <-ctx.Done():
		t.Fatal("Firefox tells nothing")
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
	files := map[string]firefoxFile{"whole": {b, 0, 59}, "growing": {b[:ends[5]], 0, 34}}
	for from, first := range map[int]int{20: 20, 13: 10} { // Firefox ignores edit lists: it shows the pictures from the key picture on
		s, err := f.Span(from, 50)
		if err != nil {
			t.Fatal(err)
		}
		files[fmt.Sprintf("from %d", from)] = firefoxFile{all(t, s), first, 49}
	}
	for name, got := range byFirefox(t, files) {
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
		for _, x := range got.Played {
			// What a page can draw is not always that to which the time belongs, but is never far from it.
			if late := math.Round(x[0]*30) - x[1] + float64(f.first); math.Abs(late) > 5 {
				t.Errorf("%s: while it plays, at %v s there is picture %v", name, x[0], x[1])
			}
		}
		t.Logf("%s: %d pictures, %d decoded in %.2f s, %d shown", name, n, got.Frames, got.End, len(got.Played))
	}
}
