// SPDX-License-Identifier: Apache-2.0

// Package programtest builds the program for tests, starts it and what it works with, and reads what they say.
package programtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// Path is the import path of the program.
const Path = "github.com/tegracast/tegracast/cmd/tegracast"

// program builds the binary once, as `make build` does. TEGRACAST_PROGRAM is one that was built before, for machines without Go.
var program = sync.OnceValues(func() (string, error) {
	if exe := os.Getenv("TEGRACAST_PROGRAM"); exe != "" {
		return exe, nil
	}
	if folder == "" {
		return "", errors.New("the package's TestMain must call programtest.Main")
	}
	exe := filepath.Join(folder, "tegracast")
	cmd := exec.Command("go", "build", "-trimpath", "-o", exe, Path)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return exe, nil
})

// folder is where the program is built, if a test asks for it.
var folder string

// Main runs the tests of a package and removes what they have built: the whole of their TestMain.
func Main(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "tegracast-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(status)
}

// Program is the path of the program.
func Program(t testing.TB) string {
	t.Helper()
	exe, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// Process is the program or a peer at work.
type Process struct {
	*exec.Cmd
	name string
	Out  bytes.Buffer // stdout
	Err  bytes.Buffer // stderr
	done chan error
}

// Start runs a command that is killed at the end of the test if it still runs then.
func Start(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	return StartCommand(t, exec.Command(name, args...))
}

// StartCommand starts a command that is killed at the end of the test if it still runs then.
func StartCommand(t testing.TB, c *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: c, name: filepath.Base(c.Path), done: make(chan error, 1)}
	p.Stdout, p.Stderr = &p.Out, &p.Err
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { p.done <- p.Cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-ended
	})
	return p
}

// End waits for the process, and returns the exit status.
func (p *Process) End(t testing.TB, bound time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
		return p.ProcessState.ExitCode()
	case <-time.After(bound):
		_ = p.Process.Kill()
		<-p.done
		t.Fatalf("%s did not end within %v\nstdout: %s\nstderr: %s", p.name, bound, p.Out.String(), p.Err.String())
		return -1
	}
}

// Need waits for a peer to end well.
func (p *Process) Need(t testing.TB, bound time.Duration) {
	t.Helper()
	if s := p.End(t, bound); s != 0 {
		t.Fatalf("%s: status %d\nstderr: %s", p.name, s, p.Err.String())
	}
}

// StartProgram starts the program.
func StartProgram(t testing.TB, args ...string) *Process {
	t.Helper()
	return Start(t, Program(t), args...)
}

// Stop sends SIGTERM and expects status 0.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if s := p.End(t, time.Minute); s != 0 {
		t.Errorf("status %d on SIGTERM\nstderr: %s", s, p.Err.String())
	}
}

// Await waits until something is in a file.
func Await(t testing.TB, path string) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if st, err := os.Stat(path); err == nil && st.Size() > 0 {
			return
		}
	}
	t.Fatalf("%s was not written", path)
}

// Write puts text into a new file.
func Write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Quiet runs a test of streaming at full rate up to three times: on a machine that is busy with something else packets get
// lost, and that is no fault of the program. A test that was disturbed each time is skipped. Wrong bytes are a fault, and f reports
// them to t itself.
func Quiet(t *testing.T, f func(t *testing.T) error) {
	t.Helper()
	rtptest.Need(t, rtptest.Tries(t, func() error { return f(t) }))
}
