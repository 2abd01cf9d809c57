// SPDX-License-Identifier: Apache-2.0

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

// program returns the path of the binary. It builds the binary once, without cgo, unless TEGRACAST_PROGRAM names a
// prebuilt one, for machines without Go.
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

// folder is the directory in which the program is built if a test needs it.
var folder string

// Main runs the tests of a package with a temporary state folder, removes this folder and the program that the tests
// have built, and ends the process. It is meant to be the whole TestMain.
func Main(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "tegracast-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.Setenv("XDG_STATE_HOME", filepath.Join(folder, "state")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(status)
}

// Folder returns a new folder for what several tests of a package share. Main removes it.
func Folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(folder, "shared-")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Program returns the path of a tegracast binary, which is built on first use unless TEGRACAST_PROGRAM names one.
func Program(t testing.TB) string {
	t.Helper()
	exe, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// Process is a running program or peer.
type Process struct {
	*exec.Cmd
	name string
	Out  bytes.Buffer  // stdout
	Err  bytes.Buffer  // stderr
	done chan struct{} // closed at its end
}

// Start starts a command. If it still runs at the end of the test, it is killed.
func Start(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	return StartCommand(t, exec.Command(name, args...))
}

// StartCommand starts a command. If it still runs at the end of the test, it is killed.
func StartCommand(t testing.TB, c *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: c, name: filepath.Base(c.Path), done: make(chan struct{})}
	p.Stdout, p.Stderr = &p.Out, &p.Err
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.Cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
	})
	return p
}

// Wait waits for the process, and returns its exit status. If the process does not end within bound, the test fails.
func (p *Process) Wait(t testing.TB, bound time.Duration) int {
	t.Helper()
	if err := p.Within(bound); err != nil {
		t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

// Within waits for the process. If the process does not end in time, Within kills it and returns an error.
func (p *Process) Within(bound time.Duration) error {
	select {
	case <-p.done:
		return nil
	case <-time.After(bound):
		_ = p.Process.Kill()
		<-p.done // ends: it was killed
		return fmt.Errorf("%s did not end within %v\nstdout: %s\nstderr: %s", p.name, bound, p.Out.String(), p.Err.String())
	}
}

// Need waits for the process, and fails the test unless it ends within bound with status 0.
func (p *Process) Need(t testing.TB, bound time.Duration) {
	t.Helper()
	if s := p.Wait(t, bound); s != 0 {
		t.Fatalf("%s: status %d\nstderr: %s", p.name, s, p.Err.String())
	}
}

// StartProgram starts tegracast with args.
func StartProgram(t testing.TB, args ...string) *Process {
	t.Helper()
	return Start(t, Program(t), args...)
}

// Stop sends SIGTERM and checks that the status is 0.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if s := p.Wait(t, time.Minute); s != 0 {
		t.Errorf("status %d on SIGTERM\nstderr: %s", s, p.Err.String())
	}
}

// Await waits until a file is not empty. The test fails after a minute.
func Await(t testing.TB, path string) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if st, err := os.Stat(path); err == nil && st.Size() > 0 {
			return
		}
	}
	t.Fatalf("%s was not written", path)
}

// Write writes text to a new file and returns its path.
func Write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// NotShort skips a test that takes several seconds, most of which it waits, if tests are to be short (make check).
func NotShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SHORT: it waits for several seconds: make test runs it")
	}
}

// Quiet runs a test of streaming at full rate up to three times, because a busy machine loses packets, which is not the
// program's fault. A test that was disturbed each time is skipped. Wrong bytes are a fault, which f reports to t itself.
func Quiet(t *testing.T, f func(t *testing.T) error) {
	t.Helper()
	rtptest.Need(t, rtptest.Tries(t, func() error { return f(t) }))
}
