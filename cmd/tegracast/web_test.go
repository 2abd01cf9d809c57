// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/lines/linestest"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// lint fails the test for each metric that promtool check metrics, which is this linter, does not accept.
func lint(t *testing.T, metrics string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(metrics)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("promlint: %s: %s", p.Metric, p.Text)
	}
}

// TestMetricNames checks that Prometheus's linter accepts the names and texts of all metrics, also of those that need a
// GPU, GPIO lines or UCX.
func TestMetricNames(t *testing.T) {
	var text strings.Builder
	for _, m := range metricsIn(t) {
		kind := "gauge"
		if strings.HasSuffix(m.name, "_total") {
			kind = "counter"
		}
		fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %[1]s %[3]s\n%[1]s 1\n", m.name, strings.ReplaceAll(m.help, "\n", " "), kind)
	}
	lint(t, text.String())
}

// TestMetrics runs the appliance with every kind of part that runs without a GPU and checks that its metrics pass
// Prometheus's linter, that it is ready and healthy, and that the dashboard and the alert rules use only existing
// metrics.
func TestMetrics(t *testing.T) {
	programtest.NotShort(t)
	p, dir := rtptest.EvenPorts(t, 5), t.TempDir()
	clip := programtest.Write(t, "clip.raw", strings.Repeat("\x00\x01", 64*16))
	text := fmt.Sprintf(`
web: {listen: "127.0.0.1:%d"}
bus: {server: "nats://127.0.0.1:1", board: test}
clock: {source: system}
sources:
  - {name: camera, model: {width: 64, height: 16, rate: 50}}
  - {name: bare, model: {width: 64, height: 16, stream: bare}}
  - {name: clip, file: {path: %[7]s, width: 64, height: 16, rate: 10}}
isp:
  - {name: isp, workers: 1, statistics: true, auto: {exposure: {}, white_balance: {}}}
outputs:
  - {name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%[2]d"]}}
  - {name: slow, rate: 5, scale: half, rtp: {payload: jpeg, destinations: ["127.0.0.1:%[3]d"]}}
  - {name: film, rtp: {payload: h264, destinations: ["127.0.0.1:%[4]d"]}}
  - {name: found, results: {udp: ["127.0.0.1:%[5]d"], bus: true}}
  - {name: kept, from: camera, record: {directory: %[6]s}}
  - {name: shared, share: {socket: %[6]s/socket}}
`, p[0], p[1], p[2], p[3], p[4], dir, clip)
	appliance := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "config.yaml", text), "--sdp-dir", dir)
	base := fmt.Sprintf("http://127.0.0.1:%d", p[0])
	probe := startReceiver(t, filepath.Join(dir, "raw.sdp"))
	for _, path := range []string{"/readyz", "/healthz"} {
		if status, body := fetch(t, base+path); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	probe.Wait(t, time.Minute)
	_, metrics := fetch(t, base+"/metrics")
	lint(t, metrics)
	for _, name := range append(gpioNames(t), "tegracast_kernel_quarantined") { // this machine has neither lines nor kernels
		metrics += "\n" + name + " "
	}
	for _, file := range []string{"grafana.json", "alerts.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../docs/monitoring", file))
		if err != nil {
			t.Fatal(err)
		}
		var content any
		err = yaml.Unmarshal(text, &content)
		if strings.HasSuffix(file, ".json") {
			err = json.Unmarshal(text, &content)
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, name := range regexp.MustCompile(`\b(tegracast|go|process)_[a-z_]+`).FindAllString(string(text), -1) {
			if !strings.Contains(metrics, "\n"+name+"{") && !strings.Contains(metrics, "\n"+name+" ") {
				t.Errorf("%s asks for %s, which is not there", file, name)
			}
		}
	}
	appliance.Stop(t)
}

// startReceiver receives for a while, so that there are receiver reports.
func startReceiver(t *testing.T, sdp string) *programtest.Process {
	t.Helper()
	programtest.Await(t, sdp)
	return programtest.StartProgram(t, "probe", "--sdp", sdp, "--duration", "7s")
}

func fetch(t testing.TB, url string) (status int, body string) {
	t.Helper()
	for try := 0; ; try++ {
		r, err := programtest.Client.Get(url)
		if err != nil && try < 1200 {
			time.Sleep(50 * time.Millisecond)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		if r.StatusCode == http.StatusServiceUnavailable && try < 1200 {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		return r.StatusCode, string(b)
	}
}

// TestWebAddress checks that an address in the configuration must be free, and that an invalid one is refused with its
// place.
func TestWebAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const rest = "\nsources: [{name: camera, model: {width: 64, height: 16}}]\nisp: [{name: isp}]\noutputs: [{name: raw, rtp: {payload: raw, destinations: [\"127.0.0.1:5104\"]}}]\n"
	for web, want := range map[string]string{
		"listen: \"" + l.Addr().String() + "\"":   "web.listen: listen tcp",
		"listen: here":                            "config.yaml:1:15: web.listen: \"here\": write an address and a port",
		"listen: \"0.0.0.0:8080\", profile: true": "web.profile: profiles show what is in memory",
	} {
		status, _, errw := runs(t, "serve", "--sdp-dir", t.TempDir(), "--config", programtest.Write(t, "config.yaml", "web: {"+web+"}"+rest))
		if status == exitOK || !strings.Contains(errw, want) {
			t.Errorf("%s: status %d, %s", web, status, errw)
		}
	}
}

// gpioNames returns the names of the metrics of lines.
func gpioNames(t *testing.T) (names []string) {
	t.Helper()
	c, err := config.Parse("test", []byte("gpio: {trigger: {line: T, rate: 1}, trigger_in: {line: I}, pps: {line: P}}\n"+good))
	if err != nil {
		t.Fatal(err)
	}
	open := lines.New(lines.Config{Board: linestest.New(), Logger: slog.New(slog.DiscardHandler)})
	for i := range c.Lines {
		if err := open.Open(&c.Lines[i]); err != nil {
			t.Fatal(err)
		}
	}
	defer open.Close(nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(&lines.Metrics{Lines: open})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return names
}
