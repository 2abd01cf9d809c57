// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tegracast/tegracast/board/vjetson/channel"
)

// portName is the virtio-serial port's name, as the harness gives it to QEMU.
const portName = "tegracast.agent"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		if os.Getpid() == 1 {
			powerOff()
		}
		os.Exit(1)
	}
}

func run() error {
	if os.Getpid() == 1 {
		if err := prepareRoot(); err != nil {
			return err
		}
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	defer port.Close()
	a := &agent{conn: channel.New(port), jobs: make(map[uint32]*job)}
	if err := a.conn.Send(channel.Hello, 0, nil); err != nil {
		return err
	}
	return a.serve()
}

// openPort waits until the driver has found the harness's port, at most 30 s, and opens it.
func openPort() (*os.File, error) {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if b, err := os.ReadFile(name); err == nil && string(b) == portName+"\n" {
				return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(name)), os.O_RDWR, 0)
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no virtio-serial port %s", portName)
		}
	}
}

type agent struct {
	conn *channel.Conn
	jobs map[uint32]*job // used only by serve
}

// job is a running job, as serve sees it.
type job struct {
	in   *io.PipeWriter // of a write: receives the data; otherwise nil
	kill chan struct{}  // of a command: closed by Kill, and then nil; otherwise nil
	done chan struct{}  // closed when the job has ended
}

// serve handles frames until the port fails. Jobs run concurrently. Only the data of a write can block it, until the disk
// has taken them.
func (a *agent) serve() error {
	for {
		f, err := a.conn.Receive()
		if err != nil {
			return fmt.Errorf("port: %w", err)
		}
		a.forget()
		j := a.jobs[f.ID]
		switch {
		case f.Kind == channel.Request:
			a.start(f)
		case j == nil: // the job has ended
		case f.Kind == channel.Kill && j.kill != nil:
			close(j.kill)
			j.kill = nil
		case f.Kind == channel.Data && j.in != nil:
			_, _ = j.in.Write(f.Payload) // fails only if the job has ended, which has reported its error
		case (f.Kind == channel.Eof || f.Kind == channel.Kill) && j.in != nil:
			var err error
			if f.Kind == channel.Kill {
				err = io.ErrUnexpectedEOF
			}
			j.in.CloseWithError(err)
		}
	}
}

func (a *agent) forget() {
	for id, j := range a.jobs {
		select {
		case <-j.done:
			delete(a.jobs, id)
		default:
		}
	}
}

func (a *agent) start(f channel.Frame) {
	var req channel.Job
	if err := json.Unmarshal(f.Payload, &req); err != nil {
		a.sendExit(f.ID, 0, err)
		return
	}
	j := &job{done: make(chan struct{})}
	a.jobs[f.ID] = j
	var do func() (int, error)
	switch req.Op {
	case channel.OpRun:
		j.kill = make(chan struct{})
		kill := j.kill
		do = func() (int, error) { return a.command(f.ID, req.Argv, kill) }
	case channel.OpWrite:
		r, w := io.Pipe()
		j.in = w
		do = func() (int, error) {
			err := writeFile(req.Path, os.FileMode(req.Mode), r)
			r.CloseWithError(io.ErrClosedPipe)
			return 0, err
		}
	case channel.OpRead:
		do = func() (int, error) { return 0, readFile(req.Path, a.conn.Writer(channel.Stdout, f.ID)) }
	default:
		do = func() (int, error) { return 0, fmt.Errorf("unknown operation %q", req.Op) }
	}
	go func() {
		status, err := do()
		close(j.done)
		a.sendExit(f.ID, status, err)
	}()
}

func (a *agent) sendExit(id uint32, status int, err error) {
	e := channel.Ending{Status: status}
	if err != nil {
		e.Error = err.Error()
	}
	_ = a.conn.SendJSON(channel.Exit, id, e) // serve ends if the port is gone
}

func writeFile(path string, mode os.FileMode, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if e := f.Chmod(mode); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

func readFile(path string, w io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyBuffer(w, f, make([]byte, channel.Piece))
	return err
}
