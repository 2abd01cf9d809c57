// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/lines/linestest"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// gpioConfig returns a configuration of a camera with lines.
func gpioConfig(to string, rate int, lines string) string {
	return fmt.Sprintf(`
web: {listen: none}
gpio: {%s}
sources:
  - name: camera
    model: {width: 64, height: 16, rate: %d}
isp:
  - {name: isp, workers: 1}
outputs:
  - name: raw
    queue: 64
    rtp: {payload: raw, destinations: [%q], pacing: burst}
`, lines, rate, to)
}

// eventually waits until is returns true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// TestGPIOInTheAppliance checks that lines work beside a stream, edges are matched with its frames, a reload reopens the
// lines that have changed and leaves the others alone, and every line is released at the end.
func TestGPIOInTheAppliance(t *testing.T) { programtest.Quiet(t, gpioInTheAppliance) }

const trigger, led, pps = "trigger: {line: T, rate: 100}", "led: {line: L}", "pps: {line: gpiochip0:3}"

func gpioInTheAppliance(t *testing.T) error {
	to := fmt.Sprint("127.0.0.1:", rtptest.EvenPorts(t, 1)[0])
	b := linestest.New()
	lateness := rtptest.WatchLateness(t)
	s := startReloadsWith(t, gpioConfig(to, 10, trigger+", "+led+", "+pps), b)
	wires := func() (list [3]*linestest.Wire) {
		for i, name := range []string{"trigger", "led", "pps"} {
			list[i] = b.Wire(t, "tegracast-"+name)
		}
		return list
	}
	first := wires()
	eventually(t, "LED", func() bool { at, _ := first[1].Pulses(); return len(at) == 1 })
	s.matchEdges(t, first[2])
	s.put(t, gpioConfig(to, 10, strings.Replace(trigger, "100", "50", 1)+", "+led+", "+pps))
	second := wires()
	if second[0] == first[0] || !first[0].Closed() || second[1] != first[1] || second[2] != first[2] {
		t.Error("another rate of the trigger: it is to be opened again, and nothing else")
	}
	camera := s.flows.find("camera")
	s.moveLines(t, to, b)
	if s.flows.find("camera") != camera {
		t.Error("reloads of lines opened the source again")
	}
	eventually(t, "frames", func() bool { return s.reports.stats().Sources[0].Captured >= 10 })
	var lossy error
	st, late := s.reports.stats().Sources[0], lateness()
	if st.Lost > 0 {
		lossy = fmt.Errorf("reloads of lines touched the stream: %d of %d frames are lost", st.Lost, st.Lost+st.Captured)
	}
	if lossy != nil && !late.Explains(st.Lost, st.Period) {
		t.Errorf("%v; %v", lossy, late)
	}
	third := wires()
	s.put(t, gpioConfig(to, 20, trigger+", led: {line: gpiochip0:3}, pps: {line: P}, strobe: {line: L, width: 1ms}"))
	if fourth := wires(); fourth[0] != third[0] || fourth[1] != third[1] || fourth[2] == third[2] {
		t.Error("another rate of the camera: the line that looks at its frames is to be opened again, and no other")
	}
	s.end(t)
	if n := b.InUse(); n != 1 {
		t.Errorf("%d lines in use besides somebody's", n-1)
	}
	return lossy
}

// matchEdges sends edges until five have been matched with frames. An edge whose frame was lost is not matched.
func (s *reloads) matchEdges(t *testing.T, line *linestest.Wire) {
	t.Helper()
	books := func() capture.MatchStats { return s.lines.Books()[config.PPSLine].Match }
	for books().Matched < 5 && books().Edges < 50 {
		sent := books().Edges + 1
		line.EdgeList <- gpio.Edge{At: time.Now(), Rising: true}
		eventually(t, "edge settled", func() bool { b := books(); return b.Edges == sent && b.Matched+b.AloneEdges == sent })
	}
	n := books()
	if lost := s.reports.stats().Sources[0].Lost; n.Matched != 5 || n.AloneEdges > lost {
		t.Errorf("%+v, and %d frames were lost", n, lost)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(&lines.Metrics{Lines: s.lines}, &hardwareMetrics{s.opener.cards, s.flows})
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", err, problems)
	}
	if n, err := testutil.GatherAndCount(registry, "tegracast_gpio_pulses_total", "tegracast_gpio_matched_frames_total", "tegracast_fpga_pinned_bytes", "tegracast_source_clock_drift_ratio"); n != 5 || err != nil {
		t.Errorf("%d of 5 metrics, %v", n, err)
	}
	says := fmt.Sprintf("| pps edges %d lost 0 matched 5 unmatched %d", n.Edges, n.AloneEdges)
	if line := lines.Status(s.lines.Books()); !strings.Contains(line, says) || !strings.Contains(line, "| trigger pulses ") {
		t.Errorf("status line: %s, want %s", line, says)
	}
	view := pageLines(s.lines.Books())
	if len(view) != 3 || view[0].Name != "led" || view[0].Where != "L" || !view[0].Output || !view[0].On ||
		view[1].Name != "pps" || view[1].Where != "gpiochip0 line 3" || view[1].Output || view[1].Edges != n.Edges || view[1].Matched != 5 || view[2].Pulses == 0 {
		t.Errorf("%+v", view)
	}
}

// moveLines exchanges two lines, which must work, and then requests a busy line, after which the previous lines must be
// restored.
func (s *reloads) moveLines(t *testing.T, to string, b *linestest.Breadboard) {
	t.Helper()
	before := s.log.count("going back")
	s.put(t, gpioConfig(to, 10, trigger+", led: {line: gpiochip0:3}, pps: {line: P}, strobe: {line: L, width: 1ms}"))
	if s.log.count("going back") != before {
		t.Error(s.log.take())
	}
	if _, err := b.Open(gpio.Line{Name: "BUSY"}, "somebody"); err != nil {
		t.Fatal(err)
	}
	s.put(t, gpioConfig(to, 10, trigger+", led: {line: BUSY}"))
	if text := s.log.take(); !strings.Contains(text, "going back") || !strings.Contains(text, "config.yaml:3:") || !strings.Contains(text, "BUSY") {
		t.Error(text)
	}
	eventually(t, "the LED from before", func() bool { at, _ := b.Wire(t, "tegracast-led").Pulses(); return len(at) > 0 })
	if b.Wire(t, "tegracast-led").Line.Offset != 3 || len(s.lines.Books()) != 4 {
		t.Errorf("the lines are not those from before: %v", s.lines.Books())
	}
}

// TestALineTriggersARecording checks that the trigger has the time of the line's edge.
func TestALineTriggersARecording(t *testing.T) {
	dir, b := t.TempDir(), linestest.New()
	s := startReloadsWith(t, fmt.Sprintf(`
web: {listen: none}
sources: [{name: camera, model: {width: 64, height: 16, rate: 50}}]
outputs: [{name: rec, from: camera, record: {directory: %q, trigger: {before: 1s, after: 100ms, gpio: {line: T}}}}]
`, dir), b)
	eventually(t, "frames", func() bool { return s.reports.stats().Outputs[0].Delivered > 20 })
	at := time.Now()
	b.Wire(t, "tegracast-record-rec").EdgeList <- gpio.Edge{At: at, Rising: true}
	files := func() []string {
		list, err := record.Files(dir, "rec")
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	eventually(t, "a file", func() bool { return len(files()) == 1 })
	if books := s.lines.Books()["record-rec"]; books.Match.Edges != 1 {
		t.Errorf("%+v", books)
	}
	s.end(t)
	r, err := record.Inspect(t.Context(), files()[0], true, func(float64) {})
	if err != nil || !r.Good() || r.Frames < 20 || len(r.Triggers) != 1 ||
		r.Triggers[0].Cause != "gpio" || r.Triggers[0].At != at.UnixNano() {
		t.Errorf("%+v, %v", r, err)
	}
	if late := r.Last.Sub(at); late > 100*time.Millisecond {
		t.Errorf("the last frame is %v behind the edge", late)
	}
}
