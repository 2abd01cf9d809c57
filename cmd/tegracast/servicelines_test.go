// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// gpioSection uses every output of the virtual Jetson's PL061. Line 3 is the power button's.
const gpioSection = `gpio:
  trigger: {line: gpiochip0:1, rate: 5, width: 20ms}
  strobe: {line: gpiochip0:2, width: 50ms}
  pps: {line: gpiochip0:3}
  reset: {line: gpiochip0:4, active_low: true, assert: 20ms, settle: 50ms}
  led: {line: gpiochip0:5}
`

// lines gives the board's lines to the service by a reload, and checks them with Debian's gpioinfo and gpioget.
func (a *installed) lines(t *testing.T) {
	const (
		file     = "/etc/tegracast/tegracast.yaml"
		inUse    = `gpioinfo gpiochip0 | grep -o 'tegracast-[a-z_]*" *[a-z]* *active-[a-z]*' | tr -s ' '`
		ours     = "tegracast-trigger\" output active-high\ntegracast-strobe\" output active-high\ntegracast-pps\" input active-high\ntegracast-reset\" output active-low\ntegracast-led\" output active-high\n"
		gpioKeys = "/sys/bus/platform/drivers/gpio-keys"
	)
	journal := func(text string) string {
		return "(for i in $(seq 300); do journalctl -q -b -u tegracast -o cat | grep -q '" + text + "' && exit 0; sleep .1; done; exit 1)"
	}
	// The kernel has the power button's line, and line 5 was left as an output by another program.
	a.must(t, "for d in "+gpioKeys+"/*keys*; do echo ${d##*/} > "+gpioKeys+"/unbind; done; gpioset gpiochip0 5=1; cp "+file+" /root/kept")
	before, err := a.Shell(t.Context(), "gpioinfo gpiochip0")
	if err != nil || !strings.Contains(before, "output") {
		t.Fatalf("%v %s", err, before)
	}
	a.must(t, "cat >> "+file+" <<'END'\n"+gpioSection+"END\nsystemctl reload tegracast; "+journal("configuration reloaded changed=.*gpio.led"))
	a.is(t, inUse, ours)
	a.is(t, "gpioget gpiochip0 5 2>&1 | grep -c busy", "1\n")
	for range 3 {
		if err := a.PressPowerButton(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(700 * time.Millisecond)
	}
	a.edges(t)
	a.must(t, "systemctl stop tegracast")
	a.is(t, "gpioinfo gpiochip0", before)
	a.must(t, "systemctl start tegracast")

	a.must(t, "systemctl kill --kill-who=main -s KILL tegracast; sleep 1; "+active)
	a.back(t, "SIGKILL with lines", time.Now())
	a.is(t, inUse, ours)
	if n := a.metric(t, "tegracast_gpio_pulses_total", config.ResetLine); n != 1 {
		t.Errorf("%v resets before the FPGA was opened", n)
	}
	a.must(t, "systemctl stop tegracast")
	a.is(t, "gpioinfo gpiochip0 | grep -c unused", "8\n")
	a.must(t, "systemd-run -q --unit=thief gpiomon gpiochip0 5; until gpioinfo gpiochip0 | grep -q gpiomon; do sleep .1; done; systemctl start --no-block tegracast; "+
		journal("gpio.led.line: gpio: the line is in use: gpiochip0 line 5 by .*gpiomon")+" && systemctl stop thief && "+active)
	a.is(t, inUse, ours)
	a.must(t, "cp /root/kept "+file+"; systemctl reload tegracast; for i in $(seq 100); do gpioinfo gpiochip0 | grep -q tegracast || exit 0; sleep .1; done; exit 1")
}

// edges checks the metrics of three pulses of the power button, and of the trigger.
func (a *installed) edges(t *testing.T) {
	t.Helper()
	for range 600 { // until the last edge has arrived
		if a.metric(t, "tegracast_gpio_edges_total", config.PPSLine) >= 3 && a.metric(t, "tegracast_gpio_matched_frames_total", config.PPSLine) >= 1 {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	for name, want := range map[string][2]float64{
		"edges_total": {3, 3}, "lost_edges_total": {0, 0}, "matched_frames_total": {1, 3}, "pps_offset_seconds": {-0.5, 0.5}, "frame_offset_seconds": {-0.2, 0.2},
	} {
		if n := a.metric(t, "tegracast_gpio_"+name, config.PPSLine); n < want[0] || n > want[1] {
			t.Errorf("%s is %v, want %v", name, n, want)
		}
	}
	trigger, strobe := a.metric(t, "tegracast_gpio_pulses_total", config.TriggerLine), a.metric(t, "tegracast_gpio_pulses_total", config.StrobeLine)
	if trigger < 5 || strobe < trigger/2 || a.metric(t, "tegracast_gpio_errors_total", config.TriggerLine) != 0 {
		t.Errorf("%v pulses of the trigger, %v of the strobe", trigger, strobe)
	}
	t.Logf("PPS: machine's clock %v s, frame %v s ± %v s", a.metric(t, "tegracast_gpio_pps_offset_seconds", config.PPSLine),
		a.metric(t, "tegracast_gpio_frame_offset_seconds", config.PPSLine), a.metric(t, "tegracast_gpio_frame_offset_uncertainty_seconds", config.PPSLine))
}

// metric returns a metric of the service.
func (a *installed) metric(t *testing.T, name, line string) float64 {
	t.Helper()
	return programtest.Found(t, regexp.MustCompile(`(?m)^`+name+`\{line="`+line+`"\} (\S+)`), a.metrics(t))
}

// metrics returns all metrics of the service.
func (a *installed) metrics(t *testing.T) string {
	t.Helper()
	text, err := a.Shell(t.Context(), `bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080; printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; cat <&3'`)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// losesGPU makes CUDA's device vanish while the service runs. The service must end with the status for that, and be
// started again. After the next boot the GPU's device files exist from the start.
func (a *installed) losesGPU(t *testing.T) {
	const file = "/etc/tegracast/tegracast.yaml"
	a.must(t, "touch /run/lost; sed -i 's/rate: 8/rate: 7/' "+file+"; systemctl reload tegracast; "+
		"for i in $(seq 300); do journalctl -q -b -u tegracast -o cat | grep -q 'code=exited, status=3/' && break; sleep .1; done; rm /run/lost; "+
		"sed -i 's/rate: 7/rate: 8/' "+file+"; cp /root/standin.modules "+standinModules+"; sync; "+active) // a power cut follows later
	a.back(t, "a lost GPU", time.Now())
	a.is(t, "journalctl --sync; journalctl -q -b -u tegracast -o cat | grep -c 'code=exited, status=3/' | grep -cv '^0$'", "1\n")
}
