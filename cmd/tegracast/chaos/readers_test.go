// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A reader is a program that reads from the service, or a server that it uses. It is restarted when it ends.
type reader struct {
	name    string
	command func() *exec.Cmd
	good    *regexp.Regexp // matches a line of output that shows progress; nil: no line does
	log     *journal

	mu      sync.Mutex
	running *exec.Cmd
	got     time.Time // time of the last such line
	lines   int       // number of such lines
	held    bool      // it must not be restarted
}

// readerPause is the delay before a reader is restarted.
const readerPause = 500 * time.Millisecond

// run keeps the reader running until ctx ends.
func (r *reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		r.mu.Lock()
		held := r.held
		r.mu.Unlock()
		if !held {
			r.once(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(readerPause):
		}
	}
}

// once runs the program to its end.
func (r *reader) once(ctx context.Context) {
	c := r.command()
	out, err := c.StdoutPipe()
	if err != nil {
		r.log.fail("%s: %v", r.name, err)
		return
	}
	said := &tail{}
	c.Stderr = said
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r.mu.Lock()
	if err = c.Start(); err == nil {
		r.running = c
	}
	r.mu.Unlock()
	if err != nil {
		r.log.fail("%s: %v", r.name, err)
		return
	}
	ended := context.AfterFunc(ctx, func() { _ = c.Process.Kill() })
	defer ended()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if r.good != nil && r.good.MatchString(lines.Text()) {
			r.mu.Lock()
			r.got = time.Now()
			r.lines++
			r.mu.Unlock()
		}
	}
	_, _ = io.Copy(io.Discard, out)
	err = c.Wait()
	r.mu.Lock()
	r.running = nil
	r.mu.Unlock()
	if ctx.Err() == nil && (err != nil || r.name != "probe") {
		r.log.logf("%s has ended: %v %s", r.name, err, said)
	}
}

// tail keeps the last bytes written.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	w.text = w.text[max(0, len(w.text)-300):]
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}

// signal sends a signal to the process if it runs.
func (r *reader) signal(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running != nil {
		_ = r.running.Process.Signal(s)
	}
}

// hold prevents restarts, or permits them again.
func (r *reader) hold(held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held
}

// reads returns an error unless the reader has made progress within a time.
func (r *reader) reads(within time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.running == nil:
		return fmt.Errorf("%s does not run", r.name)
	case r.good != nil && time.Since(r.got) > within:
		return fmt.Errorf("%s has got nothing for %v", r.name, time.Since(r.got).Round(time.Millisecond))
	}
	return nil
}

// childVariable makes the test's own program a reader. Its value selects which one.
const childVariable = "TEGRACAST_CHAOS_READER"

// readersOf returns all readers of a service. The first lines of probe's JSON show what arrived within two seconds.
func readersOf(s *service, there *network, password string, log *journal) []*reader {
	child := func(n *network, kind string, more ...string) *exec.Cmd {
		self, _ := os.Executable()
		c := exec.Command(self)
		if n != nil {
			c = n.command(self)
		}
		c.Env = append(append(os.Environ(), childVariable+"="+kind), more...)
		return c
	}
	return []*reader{
		{name: "probe", log: log, good: regexp.MustCompile(`"crc_matched": ?[1-9]`), command: func() *exec.Cmd {
			return there.command(s.program, "probe", filepath.Join(s.folder, "raw.sdp"), "--duration", "2s", "--json")
		}},
		{name: "rtsp", log: log, good: regexp.MustCompile(`^frame=[1-9]`), command: func() *exec.Cmd {
			return there.command("ffmpeg", "-v", "error", "-nostdin", "-rtsp_transport", "tcp", "-timeout", "5000000", "-stats_period", "0.5", "-progress", "pipe:1",
				"-i", fmt.Sprintf("rtsp://me:%s@%s:8554/live", password, serviceAddress), "-f", "null", "-")
		}},
		{name: "webrtc", log: log, good: regexp.MustCompile(`^frames`), command: func() *exec.Cmd {
			return child(there, "webrtc", "WHEP_URL=https://"+serviceAddress+":8443/live/whep", "WHEP_PASSWORD="+password)
		}},
		{name: "ucx", log: log, command: func() *exec.Cmd {
			c := there.command(s.program, "receive", "--ucx", serviceAddress+":5020", "--stream", "frames", "--duration", "24h", "--json")
			c.Env = append(os.Environ(), "UCX_TLS=tcp")
			return c
		}},
		{name: "share", log: log, good: regexp.MustCompile(`^frames`), command: func() *exec.Cmd {
			return child(nil, "share", "SHARE_SOCKET="+filepath.Join(s.folder, "frames"))
		}},
	}
}

// serversOf returns the servers of the bus.
func serversOf(t *testing.T, there *network, log *journal) (nats, mqtt *reader) {
	t.Helper()
	folder := t.TempDir()
	config := filepath.Join(folder, "mosquitto.conf")
	text := fmt.Sprintf("listener 1883 %s\nallow_anonymous true\nuser root\n", readerAddress)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	nats = &reader{name: "nats", log: log, command: func() *exec.Cmd {
		return there.command("nats-server", "-js", "-sd", filepath.Join(folder, "nats"), "-a", readerAddress, "-p", "4222")
	}}
	mqtt = &reader{name: "mqtt", log: log, command: func() *exec.Cmd { return there.command("mosquitto", "-c", config) }}
	return nats, mqtt
}

// unmarshal reads JSON.
func unmarshal[T any](text []byte) (v T, err error) { return v, json.Unmarshal(text, &v) }
