// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/tegracast/tegracast/board/vjetson/channel"
)

// pipeDelay is the time for which output is still read after a command has ended, if its children have its pipes open.
const pipeDelay = 2 * time.Second

// command runs argv, sends its output to the harness, and returns its exit status, or 128 plus the number of the signal
// that ended it. Closing kill ends the command with its process group.
func (a *agent) command(id uint32, argv []string, kill <-chan struct{}) (int, error) {
	if len(argv) == 0 {
		return 0, errors.New("no command")
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir = "/"
	c.Env = append(os.Environ(), "HOME=/root")
	c.Stdout, c.Stderr = a.conn.Writer(channel.Stdout, id), a.conn.Writer(channel.Stderr, id)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = pipeDelay
	if err := c.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		select {
		case <-kill:
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		case <-ended:
		}
	}()
	err := c.Wait()
	close(ended)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return exit.ExitCode(), nil
	case errors.Is(err, exec.ErrWaitDelay): // a daemon that it started still has the pipes open
		return c.ProcessState.ExitCode(), nil
	}
	return 0, err
}
