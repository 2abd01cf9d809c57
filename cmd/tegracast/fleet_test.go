// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/bus"
)

const busYAML = `
memory: host
web: {listen: %q}
rtsp: {listen: none}
bus: {server: "nats://%s", board: %s}
sources: [{name: camera, model: {width: 320, height: 240, rate: %d}}]
isp: [{name: isp, statistics: true}]
outputs:
  - {name: numbers, results: {bus: true}}
  - {name: clip, record: {directory: %q, trigger: {before: 1s, after: 100ms}}}
`

// newBusServer returns a NATS server, not yet started, for an unused address.
func newBusServer(t *testing.T, address, folder string) *server.Server {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{Host: a.IP.String(), Port: a.Port, JetStream: true, StoreDir: folder, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// busServer runs NATS in the test's process.
func busServer(t *testing.T, address string) {
	t.Helper()
	s := newBusServer(t, address, t.TempDir())
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
}

// board starts the program as a board, with a state directory of its own.
func board(t *testing.T, state, config string) *programtest.Process {
	t.Helper()
	c := exec.Command(programtest.Program(t), "serve", "--config", config, "--quiet", "--sdp-dir", t.TempDir())
	c.Env = append(os.Environ(), "STATE_DIRECTORY="+state)
	return programtest.StartCommand(t, c)
}

// fleet requests the boards until count of them are in a state.
func fleet(t *testing.T, address, state string, count int) (f Fleet) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		status, out, stderr := runs(t, "fleet", "--server", "nats://"+address, "--json")
		f = Fleet{}
		if err := json.Unmarshal([]byte(out), &f); status == exitOK && err != nil {
			t.Fatal(err, out)
		}
		n := 0
		for _, b := range f.Boards {
			if b.State == state {
				n++
			}
		}
		if n == count {
			return f
		}
		if time.Since(begin) > 3*time.Minute {
			t.Fatalf("%d of %d boards are %s: %s %s", n, count, state, out, stderr)
		}
	}
}

// messagesOf returns the messages of a subject, in the order in which the server received them.
func messagesOf[M any](t *testing.T, address, subject string, options ...nats.Option) (list []M) {
	t.Helper()
	conn, err := nats.Connect("nats://"+address, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := js.Stream(ctx, bus.Stream)
	if err != nil {
		t.Fatal(err)
	}
	for next := uint64(1); ; {
		m, err := s.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subject))
		if err != nil {
			return list
		}
		var x M
		if err := json.Unmarshal(m.Data, &x); err != nil {
			t.Fatal(err)
		}
		list, next = append(list, x), m.Sequence+1
	}
}

// TestBus starts a board before its bus and restarts it. Then the bus must have all results, the trigger, the recording,
// and health, numbered without gaps. A reload gives the board another name.
func TestBus(t *testing.T) {
	programtest.NotShort(t)
	address, web, state, clips := freePort(t), freePort(t), t.TempDir(), t.TempDir()
	t.Setenv("STATE_DIRECTORY", state)
	text := fmt.Sprintf(busYAML, web, address, "gate", 20, clips)
	path := programtest.Write(t, "bus.yaml", text)
	serve := board(t, state, path)
	status := func(want string) {
		t.Helper()
		for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			said := ""
			if r, err := programtest.Client.Get("http://" + web + "/api/v1/status"); err == nil {
				var s struct{ Bus map[string]any }
				_ = json.NewDecoder(r.Body).Decode(&s)
				r.Body.Close()
				said = fmt.Sprint(s.Bus)
			}
			if strings.Contains(said, want) && !strings.Contains(said, "waiting:0") {
				return
			}
			if time.Since(begin) > time.Minute {
				t.Fatal(said, serve.Err.String())
			}
		}
	}
	status("connected:false")
	if r, err := programtest.Client.Post("http://"+web+"/record/clip/trigger", "", nil); err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(err, r)
	}
	time.Sleep(2 * time.Second)
	serve.Stop(t)
	serve = board(t, state, path)
	busServer(t, address)
	fleet(t, address, "streaming", 1)
	text = strings.Replace(text, "board: gate", "board: door", 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := serve.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	fleet(t, address, "streaming", 2)
	serve.Stop(t)
	f := fleet(t, address, "ended", 1)
	if d := f.Boards[0].Health; d.Board != "door" || len(d.Outputs) != 2 || d.Outputs[0].Delivered == 0 || d.Sources[0].Captured == 0 {
		t.Errorf("%+v", d)
	}
	last := uint64(0)
	for i, r := range messagesOf[bus.Results](t, address, "tegracast.gate.results.numbers") {
		if r.Sequence != uint64(i+1) || r.Epoch != 1 || r.Output != "numbers" || len(r.Results) != 1 {
			t.Fatalf("%d: %+v", i, r)
		}
		last = r.Sequence
	}
	if last < 40 {
		t.Errorf("only %d results", last)
	}
	kinds := []string{}
	for i, e := range messagesOf[bus.Event](t, address, "tegracast.gate.events") {
		if e.Sequence != uint64(i+1) {
			t.Errorf("%d: %+v", i, e)
		}
		if e.Kind == bus.KindTrigger && !strings.HasPrefix(e.Cause, "http") || e.Kind == bus.KindRecording && filepath.Dir(e.File) != clips {
			t.Errorf("%+v", e)
		}
		kinds = append(kinds, e.Kind)
	}
	for _, want := range []string{bus.KindFault, bus.KindTrigger, bus.KindRecording} {
		if !slices.Contains(kinds, want) {
			t.Errorf("no %s in %v", want, kinds)
		}
	}
	if _, out, _ := runs(t, "fleet", "--server", "nats://"+address); !strings.Contains(out, "door   ended") || !strings.Contains(out, "numbers") {
		t.Error(out)
	}
}

// TestTwentyBoards runs twenty processes, each with its own model of the camera. Those that are killed become silent
// after a while.
func TestTwentyBoards(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	address := freePort(t)
	busServer(t, address)
	var all []*programtest.Process
	for n := range 20 {
		text := fmt.Sprintf(busYAML, "none", address, fmt.Sprintf("board-%02d", n), 1, t.TempDir())
		all = append(all, board(t, t.TempDir(), programtest.Write(t, "bus.yaml", text)))
	}
	fleet(t, address, "streaming", 20)
	for _, p := range all[:3] {
		_ = p.Process.Kill()
	}
	all[3].Stop(t)
	fleet(t, address, "silent", 3)
	fleet(t, address, "ended", 1)
	f := fleet(t, address, "streaming", 16)
	if !slices.IsSortedFunc(f.Boards, func(a, b FleetBoard) int { return strings.Compare(a.Health.Board, b.Health.Board) }) {
		t.Errorf("%+v", f)
	}
}

// TestFleetStates checks the states by a board's latest message, whose text cannot move the cursor.
func TestFleetStates(t *testing.T) {
	now := time.Now()
	board := func(name string, age time.Duration, c bus.Condition) bus.Health {
		c.Every = 10 * time.Second
		return bus.Health{Head: bus.Head{Board: name, ID: "7", At: now.Add(-age)}, Condition: c}
	}
	f := fleetOf([]bus.Health{
		board("a", time.Second, bus.Condition{Ready: true}), board("b", -time.Second, bus.Condition{}),
		board("c", time.Second, bus.Condition{Ready: true, Stalled: "isp\x1b[2J"}), board("d", time.Minute, bus.Condition{Ready: true}),
		board("e", time.Hour, bus.Condition{Ended: true, Outputs: []bus.OutputHealth{{Name: "x"}, {Name: "y", Sends: "JPEG"}}}),
		board("f", -time.Hour, bus.Condition{Ready: true}), board("g", time.Second, bus.Condition{Ready: true, Others: []string{"1\x1b", "2"}}),
	}, now)
	var out strings.Builder
	if err := f.print(&out); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"a streaming", "b starting", "c stalled: isp?[2J", "d silent", "e ended", "y 0 0 JPEG", "f ahead in 1h0m0s",
		"g 7 streaming", "g 1? same name", "g 2 same name",
	} {
		if line := strings.Join(strings.Fields(strings.Split(out.String(), "\n")[i+1]), " "); !strings.HasPrefix(line, want) {
			t.Errorf("%q, want %q", line, want)
		}
	}
	if strings.Contains(out.String(), "\x1b") || strings.Count(out.String(), "\n") != 11 {
		t.Errorf("%q", out.String())
	}
}
