// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// configuration is a format for the service's configuration, with folders and the bus's address. The output raw and the
// bus use names that the name server resolves.
const configuration = `
memory: host
web: {listen: "0.0.0.0:8443", certificate: %[1]s/web.crt, key: %[1]s/web.key, password_file: %[1]s/web.password}
rtsp: {listen: "0.0.0.0:8554", user: me, password_file: %[1]s/web.password}
bus: {server: "%[3]s", board: chaos}
sources:
  - {name: front, model: {width: 160, height: 120, rate: 20, seed: 1}}
  - {name: rear, model: {width: 160, height: 120, rate: 20, seed: 2}}
  - {name: clip, file: {path: %[1]s/clip.raw, width: 160, height: 120, rate: 20, once: true}}
isp:
  - {name: colour, from: front, workers: 1}
  - {name: figures, from: rear, workers: 1, statistics: true}
outputs:
  - {name: raw, from: colour, rtp: {payload: raw, destinations: ["reader.test:5004"], checksum: true}}
  - {name: live, from: colour, rtp: {payload: h264}}
  - {name: frames, from: front, ucx: {listen: "0.0.0.0:5020"}}
  - {name: kept, from: rear, record: {directory: %[2]s/recordings, duration: 5s, keep: 24MB}}
  - {name: shared, from: rear, share: {socket: %[1]s/frames}}
  - {name: numbers, from: figures, results: {bus: true}}
  - {name: back, from: figures, fpga: {}}
  - {name: once, from: clip, record: {directory: %[2]s/recordings}}
`

// clipFrames is the length of the finite source.
const clipFrames = 20

// buses are the servers of the bus. Each start of the service uses the next one.
var buses = []string{"nats://nats.test:4222", "mqtt://mqtt.test:1883"}

// restartPause is the unit's RestartSec=, and watchdog its WatchdogSec=.
const (
	restartPause = 200 * time.Millisecond
	restartBound = 5 * time.Second // within this time a killed service answers again
	watchdog     = 40 * time.Second
)

// A service is the program with its service manager.
type service struct {
	log     *journal
	program string
	folder  string // for everything that is not on the disk
	disk    *disk
	network *network
	group   *memoryGroup
	notify  *net.UnixConn
	asking  sync.Mutex // held by control

	mu      sync.Mutex
	now     *process // nil: no process should run
	starts  int
	ended   []*process
	limited func() bool // reports whether memory is limited
	late    *lateness
}

// A process is one run of the service.
type process struct {
	number   int
	cmd      *exec.Cmd
	out, err string // paths of files
	began    time.Time
	ready    time.Time // when it notified the service manager; zero: not yet
	fed      time.Time // when it last fed the watchdog
	answered time.Time // when it first answered /healthz; zero: not yet
	stopping bool
	ending   bool // it has announced its end
	limited  bool // memory was limited at its end
	done     chan struct{}
	at       time.Time // when it ended
}

// newService prepares the service without starting it.
func newService(t *testing.T, log *journal, program string, d *disk, n *network) *service {
	t.Helper()
	s := &service{log: log, program: program, folder: t.TempDir(), disk: d, network: n, group: newMemoryGroup(t), limited: func() bool { return false }}
	for _, path := range []string{filepath.Join(d.behind, "state"), filepath.Join(d.behind, "recordings"), filepath.Join(s.folder, "models")} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(program, "config", "tls", "--dir", s.folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(s.folder, "clip.raw"), make([]byte, clipFrames*160*120*2), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(s.folder, "notify"), Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.kill(); s.notify.Close() })
	go s.listen()
	return s
}

// listen receives the program's notifications to its service manager (sd_notify(3)).
func (s *service) listen() {
	for buffer := make([]byte, 4096); ; {
		n, err := s.notify.Read(buffer)
		if err != nil {
			return
		}
		said := string(buffer[:n])
		s.mu.Lock()
		if p := s.now; p != nil {
			p.ending = p.ending || strings.HasPrefix(said, "STOPPING=1")
			if p.fed = time.Now(); strings.HasPrefix(said, "READY=1") && p.ready.IsZero() {
				p.ready = p.fed
				s.log.logf("start %d is ready after %v", p.number, p.ready.Sub(p.began).Round(time.Millisecond))
			}
		}
		s.mu.Unlock()
	}
}

// start starts the program, and restarts it whenever it ends by itself.
func (s *service) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startLocked()
}

func (s *service) startLocked() error {
	s.starts++
	p := &process{number: s.starts, began: time.Now(), fed: time.Now(), done: make(chan struct{})}
	p.out, p.err = filepath.Join(s.folder, fmt.Sprintf("%03d.out", p.number)), filepath.Join(s.folder, fmt.Sprintf("%03d.log", p.number))
	file := filepath.Join(s.folder, "tegracast.yaml")
	text := fmt.Sprintf(configuration, s.folder, s.disk.folder, buses[(p.number-1)%len(buses)])
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	out, err := os.Create(p.out)
	if err != nil {
		return err
	}
	defer out.Close()
	errors, err := os.Create(p.err)
	if err != nil {
		return err
	}
	defer errors.Close()
	p.cmd = s.network.command(s.program, "serve", "--config", file, "--sdp-dir", s.folder)
	p.cmd.Stdout, p.cmd.Stderr = out, errors
	p.cmd.Env = append(os.Environ(), "UCX_TLS=tcp", "GOTRACEBACK=crash", "STATE_DIRECTORY="+filepath.Join(s.disk.folder, "state"),
		"TEGRACAST_MODEL_CONTROL="+filepath.Join(s.folder, "models"), "NOTIFY_SOCKET="+s.notify.LocalAddr().String(),
		fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds()))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	if err := s.group.add(p.cmd.Process.Pid); err != nil {
		s.log.fail("%v", err)
	}
	s.now = p
	go s.wait(p)
	return nil
}

// wait waits for the end of a process, and starts the next one unless the service was stopped.
func (s *service) wait(p *process) {
	_ = p.cmd.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	p.at, p.limited = time.Now(), s.limited()
	s.ended = append(s.ended, p)
	close(p.done)
	s.log.logf("start %d has ended: %v", p.number, p.cmd.ProcessState)
	if s.now != p || p.stopping {
		return
	}
	s.judge(p)
	time.AfterFunc(restartPause, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.now == p {
			if err := s.startLocked(); err != nil {
				s.log.fail("%v", err)
			}
		}
	})
}

// Last messages of a process that ends with status 1, after which the service manager restarts it (docs/operations.md):
// its FPGA did not recover for 30 s, or, at a start, a resource was missing.
var (
	givenUp     = regexp.MustCompile(`(?m)^tegracast serve: source (front|rear): recovery was given up after `)
	cannotBegin = regexp.MustCompile(`(?m)^tegracast serve: .*(host is not known|network is unreachable|too many open files|read-only file system|no space left` +
		`|PIN: |ALLOC: |device is fenced|registers read all ones|channel is busy).*$`)
)

// judge checks whether a process may have ended by itself: the kernel may kill it for its memory, and it may end with
// status 1 for causes outside.
func (s *service) judge(p *process) {
	status, said := p.status(), p.said()
	switch {
	case p.outOfMemory():
		go s.comesBack(p)
	case status.ExitStatus() == 1 && givenUp.MatchString(said):
		s.log.logf("%s", givenUp.FindString(said))
	case status.ExitStatus() == 1 && p.ready.IsZero() && cannotBegin.MatchString(said):
		s.log.logf("%s", cannotBegin.FindString(said))
	default:
		s.log.fail("start %d has ended by itself: %v\n%s", p.number, p.cmd.ProcessState, lastOf(said))
	}
}

func (p *process) status() syscall.WaitStatus { return p.cmd.ProcessState.Sys().(syscall.WaitStatus) }

// outOfMemory reports whether the kernel has killed a process for its memory.
func (p *process) outOfMemory() bool {
	return p.status().Signaled() && p.status().Signal() == syscall.SIGKILL && p.limited
}

// comesBack fails if the service does not answer soon after a process was killed, once it has enough memory again. If the next one was killed
// too, its own successor has to answer.
func (s *service) comesBack(p *process) {
	slow := s.disk.holdUp.Load() > 0
	for since := p.at; time.Since(since) < restartBound; time.Sleep(10 * time.Millisecond) {
		if s.limited() {
			since = time.Now()
		}
	}
	late := s.late.since(p.at)
	if slow || s.disk.holdUp.Load() > 0 {
		late += startWrites * slowWrite
	}
	time.Sleep(late)
	s.mu.Lock()
	defer s.mu.Unlock()
	if next := s.now; next != nil && next.number == p.number+1 && next.answered.IsZero() {
		s.log.fail("start %d was killed for its memory, and start %d does not answer %v later (the machine was late by %v)\n%s",
			p.number, next.number, time.Since(p.at), late, lastOf(next.said()))
	}
}

// process returns the current process.
func (s *service) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// answered records whether a process has answered a request made at a time. It reports whether the process listens, and
// whether it has ended or announced its end.
func (s *service) answered(p *process, has bool, at time.Time) (listens, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if has && p.answered.IsZero() {
		p.answered = at
	}
	return p != nil && !p.answered.IsZero(), p == nil || p != s.now || p.ending || !p.at.IsZero()
}

// stop sends SIGTERM and waits for the end. in is false if that takes longer than bound. The service is not restarted.
func (s *service) stop(bound time.Duration) (p *process, took time.Duration, in bool) {
	s.mu.Lock()
	p = s.now
	s.now, p.stopping = nil, true
	s.mu.Unlock()
	began := time.Now()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return p, p.at.Sub(began), true
	case <-time.After(bound):
		return p, bound, false
	}
}

// kill ends everything.
func (s *service) kill() {
	s.mu.Lock()
	p := s.now
	s.now = nil
	s.mu.Unlock()
	if p != nil {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// said returns the log of a process.
func (p *process) said() string {
	text, _ := os.ReadFile(p.err)
	return string(text)
}

// control sends a request to one of the models. It returns os.ErrNotExist if the process has ended meanwhile.
func (s *service) control(seed int, line string) error {
	p := s.process()
	err := s.ask(seed, line)
	if err != nil {
		time.Sleep(endsSoon)
	}
	if _, ends := s.answered(p, false, time.Time{}); err != nil && ends {
		return os.ErrNotExist
	}
	return err
}

func (s *service) ask(seed int, line string) error {
	s.asking.Lock()
	defer s.asking.Unlock()
	own := filepath.Join(s.folder, "models", "test")
	_ = os.Remove(own)
	c, err := net.DialUnix("unixgram", &net.UnixAddr{Name: own, Net: "unixgram"},
		&net.UnixAddr{Name: filepath.Join(s.folder, "models", fmt.Sprintf("model-%d", seed)), Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(line)); err != nil {
		return err
	}
	answer := make([]byte, 1024)
	n, err := c.Read(answer)
	if err == nil && string(answer[:n]) != "ok" {
		err = fmt.Errorf("model %d: %s: %s", seed, line, answer[:n])
	}
	return err
}

// eventually waits until f succeeds. If it does not within the bound, eventually returns its last error.
func eventually(ctx context.Context, bound time.Duration, f func() error) error {
	for began := time.Now(); ; {
		err := f()
		if err == nil || time.Since(began) > bound || ctx.Err() != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// read returns the text of a file.
func read(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

// lastOf returns the end of a log.
func lastOf(text string) string { return text[max(0, len(text)-4000):] }

// files counts the open descriptors of a process by what they refer to.
func (p *process) files() string {
	if p == nil {
		return "none"
	}
	folder, count := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid), map[string]int{}
	list, _ := os.ReadDir(folder)
	for _, e := range list {
		to, _ := os.Readlink(filepath.Join(folder, e.Name()))
		kind, _, _ := strings.Cut(to, ":[")
		count[kind]++
	}
	return fmt.Sprint(count)
}

// stacks ends a hanging process, and returns the stacks of its goroutines.
func (p *process) stacks() string {
	before := len(p.said())
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(2 * time.Second):
	}
	return p.said()[before:]
}
