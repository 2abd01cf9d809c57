// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	pion "github.com/pion/webrtc/v4"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// A proxy is a reverse proxy in front of the page. plain is its minimal configuration, good that of docs/operations.md.
type proxy struct {
	name        string
	plain, good string
	args        []string // FILE is the configuration's path
}

const nginxFile = `daemon off; master_process off; error_log stderr; pid %[1]s/pid; events {}
http { access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p;
fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
server { listen 10.9.3.1:80; location / { %[2]s } } }`

const haproxyFile = `defaults
  mode http
  timeout connect 5s
  timeout client 1m
  timeout server 1m
frontend outside
  bind 10.9.3.1:80
  %s
  default_backend inside
backend inside
  server camera 127.0.0.1:8080
`

const caddyFile = "{\n admin off\n auto_https off\n}\nhttp://10.9.3.1:80, http://camera.example:80 {\n reverse_proxy 127.0.0.1:8080\n}\n"

// nginxOfPage returns the location of the server in docs/operations.md.
func nginxOfPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```nginx\nserver \\{.*?location / \\{(.*?)\\}").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/operations.md has no server for nginx")
	}
	return string(found[1])
}

func proxies(t *testing.T, folder string) []proxy {
	t.Helper()
	return []proxy{
		{
			"nginx", fmt.Sprintf(nginxFile, folder, "proxy_pass http://127.0.0.1:8080;"), fmt.Sprintf(nginxFile, folder, nginxOfPage(t)),
			[]string{"nginx", "-p", folder, "-e", "stderr", "-c", "FILE"},
		},
		{"caddy", caddyFile, caddyFile, []string{"caddy", "run", "--adapter", "caddyfile", "--config", "FILE"}},
		{"haproxy", fmt.Sprintf(haproxyFile, ""), fmt.Sprintf(haproxyFile, "option forwardfor"), []string{"haproxy", "-f", "FILE"}},
	}
}

// outside is a machine that connects to a board's proxy.
type outside struct {
	board, name string // network namespaces
	folder      string
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{netns(t, "board"), netns(t, "outside"), t.TempDir()}
	rtptest.IP(t, "-n", o.board, "link", "add", "v", "type", "veth", "peer", "name", "v", "netns", o.name)
	rtptest.IP(t, "-n", o.board, "address", "add", "10.9.3.1/24", "dev", "v")
	for _, own := range []string{"2", "3"} {
		rtptest.IP(t, "-n", o.name, "address", "add", "10.9.3."+own+"/24", "dev", "v")
	}
	for _, name := range []string{o.board, o.name} {
		rtptest.IP(t, "-n", name, "link", "set", "v", "up")
	}
	return o
}

// runs starts a program on the board. It ends with the test t.
func (o *outside) runs(t *testing.T, args ...string) *programtest.Process {
	t.Helper()
	c := exec.Command("ip", append([]string{"netns", "exec", o.board}, args...)...)
	c.Env = append(os.Environ(), "HOME="+o.folder, "XDG_DATA_HOME="+o.folder, "STATE_DIRECTORY="+o.folder)
	return programtest.StartCommand(t, c)
}

// asks sends a request with curl's arguments, and returns status and body.
func (o *outside) asks(t *testing.T, args ...string) (status, body string) {
	t.Helper()
	c := exec.Command("ip", append([]string{"netns", "exec", o.name, "curl", "-s", "-m", "20", "-w", "\n%{http_code}"}, args...)...)
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		out, err := exec.Command(c.Args[0], c.Args[1:]...).Output()
		end := strings.LastIndex(string(out), "\n")
		if status = string(out[end+1:]); err == nil && status != "502" && status != "503" {
			return status, string(out[:end])
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%q: %v %s", args, err, out)
		}
	}
}

func (p proxy) start(t *testing.T, o *outside, text string) {
	t.Helper()
	file := programtest.Write(t, p.name+".conf", text)
	args := strings.Split(strings.ReplaceAll(strings.Join(p.args, "\n"), "FILE", file), "\n")
	o.runs(t, args...)
}

const proxiedYAML = `
rtsp: {listen: none}
sources: [{name: camera, model: {width: 64, height: 64, rate: 20}}]
isp: [{name: isp, workers: 1}]
outputs: [{name: live, rtp: {payload: h264}}]
`

// TestBehindProxies checks that a proxy on the board gives others access only to health and metrics. With the
// configuration of docs/operations.md and the password, everything works through it, and wrong passwords count for the
// client's address.
func TestBehindProxies(t *testing.T) {
	programtest.NotShort(t)
	for _, name := range []string{"nginx", "caddy", "haproxy", "curl", "ip"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("NEEDS %s (make setup-test): %v", name, err)
		}
	}
	o := newOutside(t)
	serve := func(web string) *programtest.Process {
		file := programtest.Write(t, "proxied.yaml", "web: "+web+proxiedYAML)
		return o.runs(t, programtest.Program(t), "serve", "--config", file, "--sdp-dir", o.folder)
	}
	first := serve("{}")
	for _, p := range proxies(t, o.folder) {
		t.Run(p.name+" plain", func(t *testing.T) { o.getsNothing(t, p) })
	}
	first.Stop(t)
	password := filepath.Join(o.folder, "password")
	if err := os.WriteFile(password, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := serve("{hosts: [camera.example], trusted_proxies: [127.0.0.1], password_file: " + password + "}")
	for i, p := range proxies(t, o.folder) {
		t.Run(p.name, func(t *testing.T) { o.getsAll(t, p, i) })
	}
	second.Stop(t)
}

func (o *outside) getsNothing(t *testing.T, p proxy) {
	p.start(t, o, p.plain)
	const base = "http://10.9.3.1"
	for _, path := range []string{"/healthz", "/metrics"} {
		if status, _ := o.asks(t, base+path); status != "200" {
			t.Errorf("%s: %s", path, status)
		}
	}
	for _, request := range [][]string{
		{base + "/"},
		{base + "/api/v1/status"},
		{base + "/api/v1/config"},
		{base + "/live.jpg"},
		{base + "/live.sdp"},
		{base + "/debug/pprof/heap"},
		{"-X", "POST", base + "/api/v1/outputs/live/stop"},
		{"-X", "PUT", "--data-binary", "x", base + "/api/v1/config"},
		{"-X", "POST", base + "/record/live/trigger"},
		{"-u", "any:wrong", base + "/api/v1/status"},
		{"-H", "X-Forwarded-For: 127.0.0.1", "-H", "Host: localhost", base + "/api/v1/status"},
	} {
		// Caddy answers 200 with an empty body for an unknown name.
		if status, body := o.asks(t, request...); status[0] != '4' && body != "" {
			t.Errorf("%q: %s %.100s", request, status, body)
		}
	}
}

func (o *outside) getsAll(t *testing.T, p proxy, number int) {
	p.start(t, o, p.good)
	const right, base = "any:correct horse battery", "http://camera.example"
	to := []string{"--resolve", "camera.example:80:10.9.3.1", "-u", right}
	for _, request := range [][]string{
		{base + "/"},
		{base + "/api/v1/status"},
		{base + "/live.jpg"},
		{"-X", "POST", base + "/api/v1/outputs/live/start"},
		{"-H", "Origin: https://camera.example", "-X", "POST", base + "/api/v1/outputs/live/start"},
	} {
		if status, body := o.asks(t, append(to, request...)...); status != "200" {
			t.Errorf("%q: %s %.100s", request, status, body)
		}
	}
	offer := programtest.Write(t, "offer.sdp", whepOffer(t))
	whep := append(to, "-H", "Content-Type: application/sdp", "--data-binary", "@"+offer, base+"/live/whep")
	if status, body := o.asks(t, whep...); status != "201" || !strings.HasPrefix(body, "v=0") {
		t.Errorf("WHEP: %s %.100s", status, body)
	}
	from := fmt.Sprintf("10.9.3.%d", 10+number)
	rtptest.IP(t, "-n", o.name, "address", "add", from+"/24", "dev", "v")
	for range 10 {
		o.asks(t, "--interface", from, "--resolve", "camera.example:80:10.9.3.1", "-u", "any:wrong", base+"/api/v1/status")
	}
	if status, _ := o.asks(t, append(to, "--interface", from, base+"/api/v1/status")...); status != "429" {
		t.Errorf("after ten wrong passwords: %s", status)
	}
	if status, _ := o.asks(t, append(to, base+"/api/v1/status")...); status != "200" {
		t.Errorf("another client: %s", status)
	}
}

// whepOffer returns a viewer's offer (draft-ietf-wish-whep).
func whepOffer(t *testing.T) string {
	t.Helper()
	peer, err := pion.NewPeerConnection(pion.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	offer, err := programtest.OfferWHEP(t.Context(), peer)
	if err != nil {
		t.Fatal(err)
	}
	return offer
}
