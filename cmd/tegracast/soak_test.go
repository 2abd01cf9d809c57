package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

var soak = flag.Duration("soak", 0, "how long TestSoak streams the model's camera, such as 1h")

// TestSoak streams for long: memory does not grow, and in the end the books are exact.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("NEEDS time: make soak, or -args -soak 1h")
	}
	p := ports(t, 1)
	text := fmt.Sprintf(`
web: {listen: none}
sources:
  - name: camera
    model: {width: 320, height: 240, rate: 30}
isp:
  - {name: isp}
outputs:
  - name: raw
    rtp: {payload: raw, destinations: ["127.0.0.1:%d"], checksum: true}
`, p[0])
	dir := t.TempDir()
	appliance := startProgram(t, "serve", "--config", write(t, "config.yaml", text), "--sdp-dir", dir)
	await(t, filepath.Join(dir, "raw.sdp"))
	var at, size []float64 // s, KiB
	begin := time.Now()
	for time.Since(begin) < *soak {
		time.Sleep(min(10*time.Second, *soak/30))
		if d := time.Since(begin); d > *soak/3 { // warm by then
			at, size = append(at, d.Seconds()), append(size, resident(t, appliance.Process.Pid))
		}
	}
	appliance.stop(t)
	n := books(t, appliance.out.String())["raw"]
	slope := slope(at, size) * 3600
	t.Logf("%v: %d frames, %d dropped; resident %.0f KiB at last, slope %.0f KiB an hour", *soak, n[0], n[2], size[len(size)-1], slope)
	if growth := size[len(size)-1] - size[0]; growth > 8<<10 {
		t.Errorf("memory has grown by %.0f KiB", growth)
	}
}

var vmRSS = regexp.MustCompile(`(?m)^VmRSS:\s+([0-9]+) kB$`)

// resident is a process's memory in KiB.
func resident(t *testing.T, pid int) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	m := vmRSS.FindSubmatch(b)
	if err != nil || m == nil {
		t.Fatalf("the appliance has ended: %v", err)
	}
	kib, _ := strconv.ParseFloat(string(m[1]), 64)
	return kib
}

// slope is that of the straight line of least squares.
func slope(x, y []float64) float64 {
	var mx, my, xy, xx float64
	for i := range x {
		mx, my = mx+x[i]/float64(len(x)), my+y[i]/float64(len(y))
	}
	for i := range x {
		xy, xx = xy+(x[i]-mx)*(y[i]-my), xx+(x[i]-mx)*(x[i]-mx)
	}
	return xy / xx
}
