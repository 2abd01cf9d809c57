// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/lines/linestest"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestChanges changes every key of the structs once, including keys that the test does not know, and checks that the
// difference is found.
func TestChanges(t *testing.T) {
	read := func(text string) *config.Appliance {
		t.Helper()
		c, err := config.Parse("test", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	base := reloadConfig(t, []string{"127.0.0.1:5004", "127.0.0.1:5006", "127.0.0.1:5008"}, 31, 1.5, 1400)
	for _, tt := range []struct {
		name, from, to string
		want           []string
	}{
		{"nothing", "", "", nil},
		{"memory", "sources:", "memory: host\nsources:", []string{"memory", "sources[one].slots", "sources[two].slots"}},
		{"source", "rate: 31", "rate: 20", []string{"sources[two].model.rate"}},
		{"isp", "red: 1.5", "red: 1.25", []string{"isp[isp2].white_balance.red"}},
		{"output", "mtu: 1400", "mtu: 1300", []string{"outputs[raw3].rtp.mtu"}},
		{"list", `"127.0.0.1:5006"`, `"127.0.0.1:5010"`, []string{"outputs[raw2].rtp.destinations"}},
		{"name", "name: raw2", "name: raw4", []string{"outputs[raw2]", "outputs[raw4]"}},
		{"web", "web: {listen: none}", "web: {listen: 127.0.0.1:9}", []string{"web.listen"}},
	} {
		if got := config.Changes(read(base), read(strings.Replace(base, tt.from, tt.to, 1))); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	order := strings.NewReplacer("name: raw1", "name: raw2", "name: raw2", "name: raw1", "from: isp1", "from: isp2", "from: isp2", "from: isp1")
	if got := config.Changes(read(base), read(order.Replace(base))); len(got) == 0 {
		t.Error("two outputs have changed places with each other, and nothing is found")
	}
}

// reloadConfig returns a configuration of two cameras with an output each, and a third output of the first camera. rate
// and red belong to the second camera, mtu to the third output.
func reloadConfig(t *testing.T, to []string, rate int, red float64, mtu int) string {
	t.Helper()
	return fmt.Sprintf(`
web: {listen: none}
sources:
  - name: one
    model: {width: 64, height: 16, rate: 10}
  - name: two
    model: {width: 64, height: 16, rate: %d}
isp:
  - {name: isp1, from: one, workers: 1}
  - {name: isp2, from: two, workers: 1, white_balance: {red: %g}}
outputs:
  - name: raw1
    from: isp1
    queue: 64
    rtp: {payload: raw, destinations: [%q], pacing: burst, checksum: true}
  - name: raw2
    from: isp2
    rtp: {payload: raw, destinations: [%q], pacing: burst}
  - name: raw3
    from: isp1
    scale: half
    rtp: {payload: raw, destinations: [%q], mtu: %d, pacing: burst}
`, rate, red, to[0], to[1], to[2], mtu)
}

// reloads is an appliance under test that reloads its configuration on demand.
type reloads struct {
	*Appliance
	file   string
	hangup chan os.Signal
	log    *logLines
	ended  chan error
	stop   context.CancelFunc
}

type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// count returns how often a text was logged.
func (l *logLines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// take returns what was logged since the last call.
func (l *logLines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

func startReloads(t *testing.T, text string) *reloads {
	t.Helper()
	return startReloadsWith(t, text, linestest.New())
}

func startReloadsWith(t *testing.T, text string, board lines.Board) *reloads {
	t.Helper()
	s := newReloads(t, text, board)
	s.begin(t)
	return s
}

// newReloads opens the appliance and announces its streams.
func newReloads(t *testing.T, text string, board lines.Board) *reloads {
	t.Helper()
	s := &reloads{file: programtest.Write(t, "config.yaml", text), hangup: make(chan os.Signal), log: &logLines{}, ended: make(chan error, 1)}
	e := Env{Out: &logLines{}, Log: slog.New(slog.NewTextHandler(s.log, nil)), Board: board, patient: true}
	c, err := config.Load(s.file)
	if err != nil {
		t.Fatal(err)
	}
	s.Appliance, err = Open(e, c, Options{Store: ConfigStore{Installed: s.file}, Dir: filepath.Dir(s.file)})
	if err != nil {
		t.Fatal(err)
	}
	health, err := newHealthWatch(s.flows.started, s.reports.stats, nil, e.Log)
	if err != nil {
		t.Fatal(err)
	}
	s.editor.notify = health.Reload
	if err := s.announcer.announceStreams(everything(c).outputs); err != nil {
		t.Fatal(err)
	}
	return s
}

// begin starts the streams.
func (s *reloads) begin(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s.stop = cancel
	go func() { s.ended <- s.runner.run(ctx, s.hangup) }()
}

// put changes the file and reloads it. It returns when the reload is complete, including a return to the previous
// configuration.
func (s *reloads) put(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	before := s.log.count("SIGHUP")
	s.hangup <- nil
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a resolver may be slow
	defer cancel()
	if err := s.requests.run(ctx, func(context.Context) (_, _ error) { return nil, nil }); err != nil || s.log.count("SIGHUP") == before {
		t.Fatal("nothing came of it: ", err)
	}
}

// stream returns the RTP stream of that name.
func (s *reloads) stream(t *testing.T, name string) *stream {
	t.Helper()
	for _, x := range s.flows.streams() {
		if x.name == name {
			return x
		}
	}
	t.Fatalf("there is no stream %s", name)
	return nil
}

// end stops the appliance and checks that it releases everything.
func (s *reloads) end(t *testing.T) pipeline.Stats {
	t.Helper()
	s.stop()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	st := s.reports.stats()
	if err := s.opener.closeAll(); err != nil {
		t.Error(err)
	}
	return st
}

// TestPollReopensTheCard checks that a change of poll reopens the device with all its users, including an output of
// another source, because a DMA engine is opened for one way of signalling completions. Other devices go on.
func TestPollReopensTheCard(t *testing.T) {
	text := func(poll bool) *config.Appliance {
		t.Helper()
		c, err := config.Parse("test", fmt.Appendf(nil, `
sources:
  - {name: one, fpga: {device: /dev/a, poll: %[1]t, width: 64, height: 16}}
  - {name: two, fpga: {device: /dev/a, poll: %[1]t, camera: 1, width: 64, height: 16}}
  - {name: three, slots: 12, fpga: {device: /dev/b, width: 64, height: 16}}
isp: [{name: isp, from: three}]
outputs:
  - {name: back, from: isp, fpga: {card: one}}
  - {name: here, from: isp, fpga: {card: three}}
`, poll))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old, next := text(false), text(true)
	for _, d := range [][2]*config.Appliance{{old, next}, {next, old}} {
		p := planned(d[0], d[1])
		if !p.flows["one"] || !p.flows["two"] || p.flows["three"] || !p.outputs["back"] || p.outputs["here"] || !p.cards["/dev/a"] || len(p.cards) != 1 || p.memory {
			t.Errorf("%+v", p)
		}
	}
	if p := planned(old, old); len(p.cards)+len(p.outputs) != 0 {
		t.Errorf("nothing has changed: %+v", p)
	}
}

// TestDestinationsOfARunningStream checks that destinations after the first can change while the output runs, and that a
// destination that cannot be reached leaves the previous ones in place.
func TestDestinationsOfARunningStream(t *testing.T) {
	p := rtptest.EvenPorts(t, 4)
	text := func(to ...any) string {
		return reloadConfig(t, []string{fmt.Sprint("127.0.0.1:", p[0]), fmt.Sprint("127.0.0.1:", p[1]), fmt.Sprint("127.0.0.1:", p[2])}, 31, 1.5, 1400) +
			fmt.Sprintf("  - {name: many, from: isp2, rtp: {payload: raw, destinations: ["+strings.Repeat("%q,", len(to))+"]}}\n", to...)
	}
	first, second, third := fmt.Sprint("127.0.0.1:", p[3]), "127.0.0.1:8", "127.0.0.2:8"
	s := startReloads(t, text(first))
	out := s.flows.find("two").outputs[1]
	for _, x := range []struct {
		to   []any
		want []string
		says string
	}{
		{[]any{first, second, third}, []string{first, second, third}, "configuration reloaded"},
		{[]any{first, third}, []string{first, third}, "configuration reloaded"},
		{[]any{first, "localhost:9"}, []string{first, third}, "still running"},
		{[]any{first, second, "nowhere.invalid:8"}, []string{first, third}, "going back to the previous one"},
		{[]any{first}, []string{first}, "configuration reloaded"},
	} {
		s.log.take()
		s.put(t, text(x.to...))
		var got []string
		for _, d := range s.stream(t, "many").sink.Stats().Destinations {
			got = append(got, d.Address)
		}
		slices.Sort(got)
		slices.Sort(x.want)
		if log := s.log.take(); !slices.Equal(got, x.want) || !strings.Contains(log, x.says) {
			t.Errorf("%v: sent to %v, want %v, and the log must say %q:\n%s", x.to, got, x.want, x.says, log)
		}
	}
	if s.flows.find("two").outputs[1] != out {
		t.Error("the output was opened again")
	}
	s.end(t)
}

// TestTheBooksOfAnOutputOutliveAReload checks that a reload that reopens an output or its source does not reset its
// counters.
func TestTheBooksOfAnOutputOutliveAReload(t *testing.T) {
	p := rtptest.EvenPorts(t, 3)
	to := []string{fmt.Sprint("127.0.0.1:", p[0]), fmt.Sprint("127.0.0.1:", p[1]), fmt.Sprint("127.0.0.1:", p[2])}
	s := startReloads(t, reloadConfig(t, to, 31, 1.5, 1400))
	seen := map[string]pipeline.OutputStats{}
	moved := func() bool {
		return !slices.ContainsFunc(s.reports.stats().Outputs, func(o pipeline.OutputStats) bool { return o.Delivered < seen[o.Name].Delivered+3 })
	}
	look := func() {
		t.Helper()
		for _, o := range s.reports.stats().Outputs {
			was := seen[o.Name]
			if o.Delivered < was.Delivered || o.Captured < was.Captured || o.Latencies.Count < was.Latencies.Count {
				t.Errorf("%s: %d of %d frames, and %d of %d before", o.Name, o.Delivered, o.Captured, was.Delivered, was.Captured)
			}
			seen[o.Name] = o
		}
	}
	for i, text := range []string{
		reloadConfig(t, to, 31, 1.5, 1300), // the third output
		reloadConfig(t, to, 30, 1.5, 1300), // the second source
		reloadConfig(t, to, 30, 1.5, 1200),
	} {
		for begin := time.Now(); !moved(); time.Sleep(time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("reload %d: no frames come", i)
			}
		}
		look()
		s.put(t, text)
		look()
	}
	for _, o := range s.end(t).Outputs {
		if o.Delivered < seen[o.Name].Delivered || o.Captured != o.Delivered+o.Drops() || o.Waiting != 0 {
			t.Errorf("%s: %d of %d frames, and %d before", o.Name, o.Delivered, o.Captured, seen[o.Name].Delivered)
		}
	}
}

func TestMain(m *testing.M) { programtest.Main(m) }

// TestAReloadThatCannotBeUndone checks that the program ends with an error that is not a mistake in the configuration, so
// that the service manager restarts it.
func TestAReloadThatCannotBeUndone(t *testing.T) {
	frame := strings.Repeat("\x00\x01", 64*16)
	raw, other := programtest.Write(t, "frame.raw", frame), programtest.Write(t, "other.raw", frame)
	text := fmt.Sprintf(`
web: {listen: none}
memory: host
sources: [{name: camera, file: {path: %s, width: 64, height: 16, rate: 10}}]
isp: [{name: isp, workers: 1}]
outputs: [{name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}]
`, raw, rtptest.EvenPorts(t, 1)[0])
	s := startReloads(t, text)
	if err := os.Remove(raw); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file, []byte(strings.NewReplacer(raw, other, "127.0.0.1", "nowhere.invalid").Replace(text)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.hangup <- nil
	err := <-s.ended
	var mistake *yamlfile.Error
	if err == nil || errors.As(err, &mistake) || !strings.Contains(err.Error(), "frame.raw") || s.log.count("nowhere.invalid") == 0 {
		t.Errorf("%v", err)
	}
	s.stop()
	if err := s.opener.closeAll(); err != nil {
		t.Error(err)
	}
}
