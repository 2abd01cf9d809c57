// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tegracast/tegracast/board/vjetson/channel"
)

const (
	maxOutput = 64 << 20        // maximum size in bytes of each of a command's two outputs in a Result
	answerIn  = 5 * time.Second // time for the agent to end a job on request
)

// Result is the result of a command.
type Result struct {
	Stdout, Stderr []byte
	Status         int // exit status, or 128 plus the number of the signal that ended the command
}

// jobs is the harness's end of the agent's port.
type jobs struct {
	conn  *channel.Conn
	hello chan struct{} // closed when the agent has answered
	gone  chan struct{} // closed when the port has ended

	mu   sync.Mutex
	last uint32
	all  map[uint32]*job
}

type job struct {
	id             uint32
	stdout, stderr io.Writer
	failed         error // first error of writing to stdout or stderr
	done           chan channel.Ending
}

func (j *jobs) serve() {
	defer close(j.gone)
	for greeted := false; ; {
		f, err := j.conn.Receive()
		if err != nil {
			return
		}
		if f.Kind == channel.Hello && !greeted {
			greeted = true
			close(j.hello)
		}
		j.mu.Lock()
		to := j.all[f.ID]
		j.mu.Unlock()
		if to != nil && to.handleFrame(f) {
			j.forget(to)
		}
	}
}

// handleFrame handles a frame, and reports whether it was the job's last.
func (j *job) handleFrame(f channel.Frame) bool {
	var err error
	switch f.Kind {
	case channel.Stdout:
		_, err = j.stdout.Write(f.Payload)
	case channel.Stderr:
		_, err = j.stderr.Write(f.Payload)
	case channel.Exit:
		var e channel.Ending
		if err := json.Unmarshal(f.Payload, &e); err != nil {
			e.Error = "the agent's answer: " + err.Error()
		}
		j.done <- e
		return true
	}
	if j.failed == nil {
		j.failed = err
	}
	return false
}

func (j *jobs) add(stdout, stderr io.Writer) *job {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	n := &job{id: j.last, stdout: stdout, stderr: stderr, done: make(chan channel.Ending, 1)}
	j.all[n.id] = n
	return n
}

func (j *jobs) forget(n *job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.all, n.id)
}

// runJob sends a job, with the data (nil for none), and waits for its end.
func (m *Machine) runJob(ctx context.Context, req channel.Job, data io.Reader, stdout, stderr io.Writer) (int, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	j := m.jobs.add(stdout, stderr)
	defer m.jobs.forget(j)
	sent := make(chan error, 1)
	go func() { sent <- m.send(ctx, j, req, data) }() // blocks on a hung guest until Close
	for {
		select {
		case e := <-j.done:
			if e.Error != "" {
				return 0, fmt.Errorf("vjetson: %s: %s", what(req), e.Error)
			}
			return e.Status, j.failed
		case err := <-sent:
			if err != nil && !portEnded(err) {
				return 0, fmt.Errorf("vjetson: %s: %w", what(req), err)
			}
			sent = nil
		case <-m.log.panicked:
			return 0, fmt.Errorf("%w under %s: %s", ErrPanic, what(req), m.log.tail())
		case <-m.jobs.gone:
			// The port ends with QEMU or with the agent, which is PID 1 in the small root.
			if err := m.awaitEnd(ctx); err != nil {
				return 0, fmt.Errorf("%s: the agent is gone: %w", what(req), err)
			}
			return 0, fmt.Errorf("vjetson: %s: %w", what(req), m.endError())
		case <-ctx.Done():
			return 0, m.abandon(ctx, j, what(req))
		}
	}
}

// portEnded reports whether err means that the port is closed, which its reader will also see.
func portEnded(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed)
}

// send sends a job, and then its data. It stops when ctx ends or reading the data fails, and the agent then treats the
// data as incomplete.
func (m *Machine) send(ctx context.Context, j *job, req channel.Job, data io.Reader) error {
	if err := m.jobs.conn.SendJSON(channel.Request, j.id, req); err != nil || data == nil {
		return err
	}
	w := m.jobs.conn.Writer(channel.Data, j.id)
	for b := make([]byte, channel.Piece); ; {
		n, err := data.Read(b)
		if n > 0 {
			if _, err := w.Write(b[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return m.jobs.conn.Send(channel.Eof, j.id, nil)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			_ = m.jobs.conn.Send(channel.Kill, j.id, nil)
			return err
		}
	}
}

// abandon tells the agent to end a job. It returns an error that wraps the cause of ctx's end, and ErrHung if the agent
// does not answer; or one that wraps ErrEnded if the connection ends.
func (m *Machine) abandon(ctx context.Context, j *job, what string) error {
	go func() { _ = m.jobs.conn.Send(channel.Kill, j.id, nil) }()
	select {
	case <-j.done:
		return fmt.Errorf("vjetson: %s was ended: %w", what, context.Cause(ctx))
	case <-m.jobs.gone:
		return fmt.Errorf("vjetson: %s: %w", what, ErrEnded)
	case <-time.After(answerIn):
		return fmt.Errorf("%w to %s: %w; %s", ErrHung, what, context.Cause(ctx), m.log.tail())
	}
}

func what(req channel.Job) string {
	switch req.Op {
	case channel.OpRun:
		return fmt.Sprintf("command %.200q", strings.Join(req.Argv, " "))
	case channel.OpWrite:
		return "copying to " + req.Path
	}
	return "copying from " + req.Path
}

// Run runs a command in the machine and returns its output and exit status. A non-zero status is no error, but more
// than 64 MiB of output of one kind is. A context without a deadline gets one of 15 minutes. When the context ends, the
// command's process group is killed. Daemons that the command leaves behind continue.
func (m *Machine) Run(ctx context.Context, argv ...string) (Result, error) {
	var out, errs limited
	status, err := m.RunTo(ctx, &out, &errs, argv...)
	return Result{Stdout: out.Bytes(), Stderr: errs.Bytes(), Status: status}, err
}

// RunTo is like Run, but passes the output to writers while the command runs. It returns a writer's error.
func (m *Machine) RunTo(ctx context.Context, stdout, stderr io.Writer, argv ...string) (status int, err error) {
	return m.runJob(ctx, channel.Job{Op: channel.OpRun, Argv: argv}, nil, stdout, stderr)
}

// Shell runs a line of sh and returns its standard output. A non-zero status is an error, which contains all of the
// output.
func (m *Machine) Shell(ctx context.Context, line string) (string, error) {
	r, err := m.Run(ctx, "sh", "-c", line)
	if err == nil && r.Status != 0 {
		err = fmt.Errorf("vjetson: %q: exit status %d: %s", line, r.Status, bytes.TrimSpace(append(r.Stderr, r.Stdout...)))
	}
	return string(r.Stdout), err
}

// CopyIn copies a file of the host into the machine, with its permission bits.
func (m *Machine) CopyIn(ctx context.Context, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("vjetson: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("vjetson: %w", err)
	}
	job := channel.Job{Op: channel.OpWrite, Path: to, Mode: uint32(st.Mode().Perm())}
	_, err = m.runJob(ctx, job, f, io.Discard, io.Discard)
	return err
}

// CopyOut copies a file of the machine to the host, with the permission bits 0644. If it fails, to is not changed.
func (m *Machine) CopyOut(ctx context.Context, from, to string) error {
	f, err := os.CreateTemp(filepath.Dir(to), ".vjetson-")
	if err != nil {
		return fmt.Errorf("vjetson: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := m.runJob(ctx, channel.Job{Op: channel.OpRead, Path: from}, nil, f, io.Discard); err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(0o644), f.Close(), os.Rename(f.Name(), to)); err != nil {
		return fmt.Errorf("vjetson: %w", err)
	}
	return nil
}

// limited keeps output. It refuses a write beyond maxOutput.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("vjetson: the command wrote more than %d MiB", maxOutput>>20)
	}
	return l.Buffer.Write(p)
}
