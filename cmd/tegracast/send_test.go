// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cmd/tegracast/token"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestSend checks that a running serve process sends a stream to another receiver, which gets whole frames by the
// description that send prints, until the stream is ended; over HTTP and over TLS. Impossible requests are refused with
// the reason.
func TestSend(t *testing.T) {
	for name, secure := range map[string]bool{"http": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			p := rtptest.EvenPorts(t, 4)
			dir := t.TempDir()
			if status, _, errw := runs(t, "config", "tls", "--dir", dir, "--name", "camera.example.org"); status != exitOK {
				t.Fatal(errw)
			}
			access := ""
			if secure {
				access = fmt.Sprintf(", certificate: %[1]s/web.crt, key: %[1]s/web.key, password_file: %[1]s/web.password", dir)
			}
			config := programtest.Write(t, "config.yaml", fmt.Sprintf(`
web: {listen: "127.0.0.1:%d"%s}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 320, height: 240, rate: 20}}]
isp: [{name: isp, workers: 1}]
outputs:
  - {name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], checksum: true}}
  - {name: jpeg, scale: half, rtp: {payload: jpeg, destinations: ["127.0.0.1:%d"]}, record: {directory: %q, duration: 1s}}
`, p[0], access, p[1], p[2], dir))
			more := fmt.Sprintf("127.0.0.1:%d", p[3])
			says(t, "nobody is there", []string{"send", "raw", more, "--config", config}, exitFailure, "nobody answers", "is serve running")
			victim := filepath.Join(dir, "victim") // target of a link that another user has made in the folder
			if err := os.Symlink(victim, filepath.Join(dir, "raw.sdp")); err != nil {
				t.Fatal(err)
			}
			serve := programtest.StartProgram(t, "serve", "--config", config, "--sdp-dir", dir)
			programtest.Await(t, filepath.Join(dir, "raw.sdp"))
			sdp := ""
			for began := time.Now(); sdp == ""; time.Sleep(50 * time.Millisecond) { // until the page is reachable
				status, out, errw := runs(t, "send", "raw", more, "--config", config)
				if sdp = out; status != exitOK && time.Since(began) > time.Minute {
					t.Fatal(errw)
				}
			}
			if _, err := os.Lstat(victim); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("serve has followed the link: %v", err)
			}
			again := filepath.Join(dir, "again.sdp")
			if err := os.WriteFile(again, []byte(sdp), 0o600); err != nil {
				t.Fatal(err)
			}
			comesWhole(t, func() *programtest.Process {
				return programtest.StartProgram(t, "probe", again, "--json", "--duration", "1s")
			})
			if _, out, _ := runs(t, "send", "raw", more, "--config", config); out != sdp {
				t.Errorf("the second time it prints\n%s", out)
			}
			raws := fmt.Sprintf("127.0.0.1:%d", p[1])
			says(t, "another stream's", []string{"send", "jpeg", raws, "--config", config}, exitFailure, "of raw already")
			for _, name := range []string{"film", "", ".", "..", "a/../raw", strings.Repeat("x", 300)} {
				for _, args := range [][]string{{"send", name, more}, {"stop", name}, {"start", name}, {"trigger", name}} {
					says(t, "no output", append(args, "--config", config), exitFailure, "there is no output \"", "the outputs are raw, jpeg")
				}
				says(t, "nothing to set", []string{"set", name, "--auto", "--config", config}, exitFailure, "there is no")
			}
			says(t, "configured", []string{"send", "raw", raws, "--stop", "--config", config}, exitFailure, "not sent there")
			if status, _, errw := runs(t, "send", "raw", more, "--stop", "--config", config); status != exitOK {
				t.Error(errw)
			}
			says(t, "twice", []string{"send", "raw", more, "--stop", "--config", config}, exitFailure, "not sent there")
			controls(t, config)
			if !secure {
				generatedClient(t, config)
			}
			serve.Stop(t)
			if !strings.Contains(serve.Out.String(), "delivered") {
				t.Errorf("no books: %s", serve.Out.String())
			}
		})
	}
}

// generatedClient has a client that is made from the OpenAPI document call every operation, and compares the answers with
// the document.
func generatedClient(t *testing.T, file string) {
	t.Helper()
	if _, err := os.Stat("testdata/client/node_modules/openapi-client-axios"); err != nil {
		t.Fatalf("%v: make setup-test installs the client", err)
	}
	ask, err := askerFor(file)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "node", "testdata/client/client.mjs", ask.base, ask.key).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// controls stops and starts an output, and sets camera and isp, by commands. The status of serve must show it.
func controls(t *testing.T, file string) {
	t.Helper()
	ask, err := askerFor(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want string // in the status
	}{
		{"stop jpeg", `"stopped":true,"state":"stopped"`},
		{"start jpeg", `"name":"jpeg","from":"isp","sends":"JPEG (RFC 2435)"`},
		{"set camera --exposure 3ms --gain 2", `"exposure_us":3000,"gain":2,`},
		{"set camera --gain 4", `"exposure_us":3000,"gain":4,`},
		{"set isp --red 1.5 --blue 1.25", `"isp":"isp","red":1.5,"blue":1.25,`},
	} {
		args := append(strings.Fields(c.args), "--config", file)
		if status, out, errw := runs(t, args...); status != exitOK || out != "" {
			t.Errorf("%s: status %d, %s %s", c.args, status, out, errw)
			continue
		}
		text, err := ask.request(t.Context(), http.MethodGet, "/api/v1/status", nil)
		if err != nil || !strings.Contains(string(text), c.want) {
			t.Errorf("%s: %v, %s has no %s", c.args, err, text, c.want)
		}
	}
	for args, want := range map[string]string{
		"stop film": "no output \"film\"", "trigger raw": "no recording of that name", "set film --gain 2": "nothing of that name",
		"set isp --auto": "serve refuses: ", "set camera --exposure 1h": "serve refuses: ",
	} {
		says(t, args, append(strings.Fields(args), "--config", file), exitFailure, want)
	}
	for args, want := range map[string]string{
		"stop": "name an output", "set camera": "give --exposure", "set isp --red 2": "--red and --blue together", "set camera --auto --gain 2": "give --exposure",
		"set camera --gain 0": "above 0", "set camera --gain NaN": "above 0",
	} {
		says(t, args, append(strings.Fields(args), "--config", file), exitUsage, want)
	}
}

// TestSendFollowsNobody checks that another program that listens at serve's address cannot redirect the request.
func TestSendFollowsNobody(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) { asked = true }))
	defer other.Close()
	wrong := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer wrong.Close()
	a, err := newAsker(config.Web{Listen: strings.TrimPrefix(wrong.URL, "http://")}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.request(t.Context(), http.MethodPut, "/api/v1/outputs/raw", nil); asked || err == nil || !strings.Contains(err.Error(), "another program answers") {
		t.Errorf("asked elsewhere: %v, %v", asked, err)
	}
}

// TestSendTellsNoKeyToOthers checks that another user who listens at the page's address while serve does not run gets no
// key.
func TestSendTellsNoKeyToOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NEEDS root, to be another user")
	}
	const nobody = 65534
	runtime.LockOSThread() // the socket belongs to the thread's user
	unix.RawSyscall(unix.SYS_SETFSUID, nobody, 0, 0)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0)
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	key, err := token.Make(os.Getenv("STATE_DIRECTORY"))
	if err != nil {
		t.Fatal(err)
	}
	page := config.Web{Listen: l.Addr().String()}
	if _, err := newAsker(page, false); err == nil || !strings.Contains(err.Error(), "user 65534 listens at "+page.Listen) {
		t.Errorf("the key is told to another user: %v", err)
	}
	if page.PasswordFile = filepath.Join(t.TempDir(), "password"); os.WriteFile(page.PasswordFile, []byte(key), 0o644) != nil {
		t.Fatal("no password")
	}
	if a, err := newAsker(page, false); err != nil || a.key != key { // the listener can read it
		t.Errorf("%q, %v", a.key, err)
	}
	l.Close()
	if l, err = net.Listen("tcp", page.Listen); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	page.PasswordFile = ""
	if a, err := newAsker(page, false); err != nil || a.key != key {
		t.Errorf("the own user gets no key: %q, %v", a.key, err)
	}
}

func TestReads(t *testing.T) {
	daemon, err := user.LookupId("1")
	if err != nil {
		t.Skipf("NEEDS a user of number 1: %v", err)
	}
	group, err := strconv.Atoi(daemon.Gid)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		who, uid, gid int
		mode          uint32
		want          bool
	}{
		{0, 7, 7, 0o000, true},
		{7, 7, 7, 0o600, true},
		{7, 7, 0, 0o040, false},
		{8, 7, 7, 0o600, false},
		{8, 7, 7, 0o644, true},
		{1, 0, group, 0o640, true},
		{1, 0, group, 0o600, false},
		{1, 0, 123456, 0o640, false},
		{123456, 0, group, 0o640, false},
	} {
		if got := reads(tt.who, &syscall.Stat_t{Uid: uint32(tt.uid), Gid: uint32(tt.gid), Mode: tt.mode}); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
