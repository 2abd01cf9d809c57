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
	Providers         []string // the first that works runs the model
	Command           []string // path and arguments of the program that calls Work: with the Task on stdin, frames as descriptor 3, reports as 4
}

// A Stage passes frames on with the results of a model, which a process of its own computes. The process is started again
// whenever it ends.
//
// A provider that cannot load the model, or three of whose processes ended soon after they ran, is left out, until none is
// left: then all are tried again after a pause.
type Stage struct {
	*share.Stage
	config StageConfig
	format pipeline.Format // of the frames; set before the process starts

	start  sync.Once
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex
	status  Status
	before  Steps             // of the processes that have ended
	failed  map[string]string // providers that are left out, and why
	crashes int               // ends of processes that ran, one soon after the other, with the same provider
	faults  pipeline.FaultLog // limits the lines about frames without results
}

// A Status is the state of the process that runs a model.
type Status struct {
	State    State
	Provider string // with which it loads or runs the model; "": none
	Runtime  string // release of ONNX Runtime; "": not loaded yet
	Starts   int    // of the process
	Error    string // why it ended last, or a frame has no results; "": nothing has failed
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
		s.format = in
		s.format.Rate = pipeline.Rate{Num: 1, Den: 1} // nobody reads it, and JSON has no rate that is not known
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
	for _, p := range s.config.Providers {
		if why, is := s.failed[p]; is {
			st.Failed = append(st.Failed, p+": "+why)
		}
	}
	return st
}

const (
	firstPause, lastPause = time.Second, time.Minute
	settled               = time.Minute // a process that ran for this long is started again soon
	mostCrashes           = 3
	patience              = 2 * time.Second // for a process that has been told to end, and for one that has been killed
)

// supervise runs processes until ctx ends.
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
		provider, lost, left := s.blame(r.Attempts == 1)
		if lost {
			s.config.Logger.Warn("infer: a provider cannot run the model", "stage", s.config.Name, "provider", provider, "error", fault, "left", left)
		} else if n, due := faults.Due("", time.Now()); due {
			s.config.Logger.Error("infer: the model's process has ended and will be started again: frames go on without results",
				pipeline.Unlogged([]any{"stage", s.config.Name, "error", fault}, n)...)
		}
		return lost && len(left) > 0
	})
}

// blame decides whether the provider has ended the process, and is left out. left are the providers that are not, none if
// all are tried again after a pause. fresh says that the process before ran for long, or was the first.
func (s *Stage) blame(fresh bool) (provider string, lost bool, left []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.status.State
	provider, s.status.Provider, s.status.State = s.status.Provider, "", Starting
	if fresh {
		s.crashes = 0
	}
	if state == Running {
		s.crashes++
	}
	if state == Starting || state == Running && s.crashes < mostCrashes {
		return provider, false, nil
	}
	s.failed[provider], s.crashes = s.status.Error, 0
	if left = s.remaining(); len(left) == 0 {
		clear(s.failed)
	}
	return provider, true, left
}

// remaining returns the providers that are not left out. The lock must be held.
func (s *Stage) remaining() []string {
	return slices.DeleteFunc(slices.Clone(s.config.Providers), func(p string) bool {
		_, failed := s.failed[p]
		return failed
	})
}

// runProcess runs one process until it or ctx ends, and says why it ended.
func (s *Stage) runProcess(ctx context.Context) error {
	s.mu.Lock()
	provider := s.remaining()[0] // blame leaves one
	s.status.Starts++
	s.status.Provider, s.status.Runtime = provider, ""
	s.mu.Unlock()
	failed := ""
	err := s.runCommand(ctx, Task{s.config.Infer, provider, s.format}, &failed)
	switch {
	case failed != "":
		err = errors.New(failed)
	case err == nil:
		err = errors.New("it has ended by itself")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = s.before.plus(s.status.Steps)
	s.status.Steps, s.status.Error = Steps{}, err.Error()
	return err
}

// runCommand runs one process. failed is set if it reports that the provider cannot load the model.
func (s *Stage) runCommand(ctx context.Context, t Task, failed *string) error {
	text, err := json.Marshal(t)
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
	wait, err := sandbox.Start(cmd, t.paths())
	err = errors.Join(err, frames.Close(), theirs.Close())
	if wait == nil {
		return errors.Join(err, reports.Close())
	}
	return errors.Join(err, s.follow(ctx, cmd, wait, reports, last, failed))
}

// follow reads the process's reports until it ends. When ctx ends, the process is told to end if it runs the model, and
// is killed if it does not. One that does not end then, because of a driver or a disk that hangs, is left behind.
func (s *Stage) follow(ctx context.Context, cmd *exec.Cmd, wait func() error, reports *os.File, last *lastLine, failed *string) error {
	var reading sync.WaitGroup
	var strange error
	reading.Go(func() {
		if strange = readReports(reports, func(r report) {
			if s.take(r, failed); *failed != "" {
				last.mute() // it ends with the same words
			}
		}); strange != nil {
			_ = cmd.Process.Kill() // it has ended, or ends now
		}
	})
	ended, left := make(chan error, 1), make(chan struct{})
	go func() { ended <- wait() }()
	stop := context.AfterFunc(ctx, func() {
		last.mute()
		if s.Status().State == Running {
			_ = cmd.Process.Signal(os.Interrupt) // it has ended, or is told to
			time.Sleep(patience)
		}
		_ = cmd.Process.Kill() // likewise
		time.Sleep(patience)
		close(left)
	})
	var err error
	select { // ends: the process does, or ctx and then left
	case err = <-ended:
	case <-left:
		err = fmt.Errorf("process %d does not end", cmd.Process.Pid)
		s.config.Logger.Error("infer: the model's process does not end, and is left behind", "stage", s.config.Name, "process", cmd.Process.Pid)
	}
	stop()
	_ = reports.SetReadDeadline(time.Now().Add(patience)) // a process that it has started might keep the pipe
	reading.Wait()
	err = errors.Join(err, strange, reports.Close())
	if text := last.text(); err != nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// take takes a report of the process, which is not trusted.
func (s *Stage) take(r report, failed *string) {
	s.mu.Lock()
	next := r.State == Loading && s.status.State == Starting || r.State == Running && s.status.State == Loading
	if next {
		s.status.State, s.status.Runtime = r.State, printable.Text(r.Runtime)
	}
	if r.Steps != nil && r.Steps.since(s.status.Steps) {
		s.status.Steps = *r.Steps
	}
	if r.Failed != "" && s.status.State == Loading {
		*failed = printable.Text(r.Failed)
	}
	warned, due := 0, false
	if r.Frame != "" {
		s.status.Error = printable.Text(r.Frame)
		warned, due = s.faults.Due("", time.Now())
	}
	st := s.status
	s.mu.Unlock()
	if next {
		s.config.Logger.Info("infer: the model is "+string(st.State), "stage", s.config.Name, "provider", st.Provider, "ONNX Runtime", st.Runtime)
	}
	if due {
		s.config.Logger.Warn("infer: a frame goes on without results", pipeline.Unlogged([]any{"stage", s.config.Name, "error", st.Error}, warned)...)
	}
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

// longestLine is the number of bytes of a line that are kept.
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
	switch {
	case !crashed(l.last):
		l.last = text
	case strings.HasPrefix(text, "what(): ") && strings.HasPrefix(l.last, terminated):
		l.last += " " + text
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

// terminated begins the report of the C++ library about an exception that nothing handles.
const terminated = "terminate called"

// crashed reports whether a line is the first that a program writes when it crashes; details follow.
func crashed(line string) bool {
	return strings.HasPrefix(line, terminated) || strings.HasPrefix(line, "SIG") ||
		strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "panic: ")
}

// text returns the last line, also one that has not ended.
func (l *lastLine) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	return l.last
}
