// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/sandbox"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/share"
)

// A StageConfig configures a Stage.
type StageConfig struct {
	share.StageConfig          // without a socket
	Infer             Config   // of the model
	Command           []string // path and arguments of the program that calls Work: with the Config on stdin, frames as descriptor 3, reports as 4
}

// A Stage passes frames on with the results of a model, which a process of its own computes. The process is started again
// whenever it ends.
type Stage struct {
	*share.Stage
	config StageConfig

	start  sync.Once
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu     sync.Mutex
	status Status
	before Steps             // of the processes that have ended
	failed map[string]string // providers that cannot run the model, and why
	faults pipeline.FaultLog // limits the lines about frames without results
}

// A Status is the state of the process that runs a model.
type Status struct {
	State    State
	Provider string // with which it loads or runs the model
	Runtime  string // release of ONNX Runtime; "": not loaded yet
	Starts   int    // of the process
	Error    string // why it ended last, or what failed last; "": nothing has
	Failed   []string
	Steps    Steps // of all processes
}

// NewStage returns a Stage. The caller must close it. The process is started by Plan.
func NewStage(c StageConfig) (*Stage, error) {
	c.Socket, c.Frames = "", 1 // the process works on one frame after the other
	inner, err := share.NewStage(c.StageConfig)
	if err != nil {
		return nil, err
	}
	return &Stage{Stage: inner, config: c, failed: map[string]string{}, status: Status{State: Starting}, cancel: func() {}}, nil
}

// Plan implements pipeline.Stage. Its first call starts the process.
func (s *Stage) Plan(in pipeline.Format, outs []pipeline.Format) error {
	if err := s.Stage.Plan(in, outs); err != nil {
		return err
	}
	s.start.Do(func() {
		var ctx context.Context
		ctx, s.cancel = context.WithCancel(context.Background())
		s.ended.Go(func() { s.supervise(ctx) })
	})
	return nil
}

// Close ends the process. Process must not run.
func (s *Stage) Close() error {
	s.cancel()
	err := s.Stage.Close()
	s.ended.Wait()
	return err
}

// Status returns the state of the process.
func (s *Stage) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.Steps = s.before.plus(st.Steps)
	for _, p := range s.config.Infer.Providers {
		if why, is := s.failed[p]; is {
			st.Failed = append(st.Failed, p+": "+why)
		}
	}
	return st
}

const (
	firstPause, lastPause = time.Second, time.Minute
	settled               = time.Minute // a process that ran for this long is started again soon
	patience              = 2 * time.Second
)

// supervise runs the process until ctx ends.
func (s *Stage) supervise(ctx context.Context) {
	var faults pipeline.FaultLog
	r := pipeline.Recovery{First: firstPause, Last: lastPause}
	attempt := func(ctx context.Context) (pipeline.Outcome, error) {
		began := time.Now()
		err := s.runProcess(ctx)
		if time.Since(began) > settled {
			return pipeline.Settled, err
		}
		return pipeline.Fruitless, err
	}
	_ = r.Run(ctx, attempt, func(_ context.Context, fault error) bool { // it ends with ctx alone
		next := s.blame(r.Attempts)
		if left, due := faults.Due(fault.Error(), time.Now()); due {
			s.config.Logger.Error("infer: the model's process has ended and will be started again: frames go on without results",
				pipeline.Unlogged([]any{"stage", s.config.Name, "error", fault}, left)...)
		}
		return next
	})
}

// blame decides what has ended the process: one that ended while a provider loaded the model, or a third time soon after it
// ran, ends with that provider. It returns true if another provider is tried at once.
func (s *Stage) blame(attempts int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.status.Provider
	s.status.Provider = ""
	if p == "" || s.status.State == Running && attempts < 3 {
		s.status.State = Starting
		return false
	}
	s.status.State = Starting
	if _, known := s.failed[p]; !known {
		s.failed[p] = s.status.Error
	}
	if len(s.remaining()) > 0 {
		return true
	}
	clear(s.failed) // after the pause all are tried again
	return false
}

// remaining returns the providers that have not failed. The lock must be held.
func (s *Stage) remaining() []string {
	return slices.DeleteFunc(slices.Clone(s.config.Infer.Providers), func(p string) bool {
		_, failed := s.failed[p]
		return failed
	})
}

// runProcess runs one process until it or ctx ends, and says why it ended.
func (s *Stage) runProcess(ctx context.Context) error {
	err := s.runCommand(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = s.before.plus(s.status.Steps)
	s.status.Steps = Steps{}
	if err == nil {
		err = errors.New("it has ended by itself")
	}
	s.status.Error = err.Error()
	return err
}

func (s *Stage) runCommand(ctx context.Context) error {
	s.mu.Lock()
	c := s.config.Infer
	c.Providers = s.remaining()
	s.status.Starts++
	s.mu.Unlock()
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	frames, err := s.Connect("the model's process")
	if err != nil {
		return err
	}
	reports, theirs, err := os.Pipe()
	if err != nil {
		return errors.Join(err, frames.Close())
	}
	last := &lastLine{log: s.config.Logger, stage: s.config.Name}
	cmd := exec.Command(s.config.Command[0], s.config.Command[1:]...)
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles, cmd.Env = bytes.NewReader(text), last, []*os.File{frames, theirs}, environment()
	cmd.WaitDelay = patience
	wait, err := sandbox.Start(cmd)
	err = errors.Join(err, frames.Close(), theirs.Close())
	if wait == nil {
		return errors.Join(err, reports.Close())
	}
	return errors.Join(err, s.follow(ctx, cmd, wait, reports, last))
}

// follow reads the process's reports until it ends. When ctx ends, the process is given a moment, and then killed.
func (s *Stage) follow(ctx context.Context, cmd *exec.Cmd, wait func() error, reports *os.File, last *lastLine) error {
	var reading sync.WaitGroup
	var strange error
	reading.Go(func() {
		if strange = readReports(reports, s.take); strange != nil {
			_ = cmd.Process.Kill() // it has ended, or ends now
		}
	})
	stop := context.AfterFunc(ctx, func() {
		last.mute()
		_ = cmd.Process.Signal(os.Interrupt) // it has ended, or is told to
		time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	})
	err := wait()
	stop()
	_ = reports.SetReadDeadline(time.Now().Add(patience)) // a process that it has started might keep the pipe
	reading.Wait()
	err = errors.Join(err, strange, reports.Close())
	if text := last.text(); err != nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// take takes a report of the process.
func (s *Stage) take(r report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.State {
	case Loading, Running:
		s.status.State, s.status.Provider, s.status.Runtime = r.State, printable.Text(r.Provider), printable.Text(r.Runtime)
		s.config.Logger.Info("infer: the model is "+string(r.State), "stage", s.config.Name, "provider", s.status.Provider, "ONNX Runtime", s.status.Runtime)
	}
	if r.Steps != nil {
		s.status.Steps = *r.Steps
	}
	if f := r.Failed; f != nil {
		s.fail(printable.Text(f.Provider), printable.Text(f.Error))
	}
}

// fail records a failure. The lock must be held.
func (s *Stage) fail(provider, why string) {
	s.status.Error = why
	if !slices.Contains(s.config.Infer.Providers, provider) {
		if left, due := s.faults.Due("", time.Now()); due {
			s.config.Logger.Warn("infer: a frame goes on without results", pipeline.Unlogged([]any{"stage", s.config.Name, "error", why}, left)...)
		}
		return
	}
	s.failed[provider] = why
	left := s.remaining()
	s.config.Logger.Warn("infer: a provider cannot run the model", "stage", s.config.Name, "provider", provider, "error", why, "left", left)
}

// environment returns the process's environment: paths of libraries, and settings of the driver. Releases of ONNX Runtime
// from 1.30 on would send reports of its use, which the sandbox would prevent with a warning.
func environment() []string {
	list := []string{"ORT_DISABLE_TELEMETRY=1"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "LANG", "CUDA_VISIBLE_DEVICES", "CUDA_CACHE_PATH", "HOME"} {
		if value, is := os.LookupEnv(name); is {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// lastLine logs lines that a process writes to stderr, and keeps the last one, or that with which it crashes.
type lastLine struct {
	log   *slog.Logger
	stage string

	mu     sync.Mutex
	rest   []byte
	last   string
	muted  bool
	faults pipeline.FaultLog
}

// longestLine is how much of a line is kept.
const longestLine = 1024

// Write implements io.Writer.
func (l *lastLine) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := b; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		l.rest = append(l.rest, line[:min(len(line), longestLine-len(l.rest))]...)
		if rest = after; whole {
			l.end()
		}
	}
	return len(b), nil
}

// end ends a line. The lock must be held.
func (l *lastLine) end() {
	text := printable.Text(string(bytes.TrimSpace(l.rest)))
	if l.rest = l.rest[:0]; text == "" {
		return
	}
	if !crashed(l.last) {
		l.last = text
	}
	if left, due := l.faults.Due("", time.Now()); due && !l.muted {
		l.log.Warn("infer: the model's process writes", pipeline.Unlogged([]any{"stage", l.stage, "line", text}, left)...)
	}
}

// mute ends the logging of lines: the process has been told to end.
func (l *lastLine) mute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.muted = true
}

// crashed reports whether a line is the first that a Go program writes when it crashes; details follow.
func crashed(line string) bool {
	return strings.HasPrefix(line, "SIG") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "panic: ")
}

// text returns the last line, also one that has not ended.
func (l *lastLine) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	return l.last
}
