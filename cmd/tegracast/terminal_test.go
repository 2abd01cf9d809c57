// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// pseudoTerminal returns both ends of a pseudoterminal.
func pseudoTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// TestLoopbackSaysWhatItWaitsFor checks that a terminal is told that large memory takes time, and a file is not.
func TestLoopbackSaysWhatItWaitsFor(t *testing.T) {
	master, slave := pseudoTerminal(t)
	defer master.Close()
	defer slave.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const says = "surfaces of 67108864 bytes are being made"
	args := []string{"loopback", "--size", "64MiB"}
	run(ctx, args, io.Discard, slave)
	b := make([]byte, 4096)
	if n, err := master.Read(b); err != nil || !strings.HasPrefix(string(b[:n]), says) {
		t.Errorf("%q, %v", b[:n], err)
	}
	var errw strings.Builder
	if run(ctx, args, io.Discard, &errw); strings.Contains(errw.String(), says) {
		t.Error(errw.String())
	}
}

// TestTerminalCloses checks that serve reloads at a SIGHUP that another process sends, and ends at the one of a closing
// terminal.
func TestTerminalCloses(t *testing.T) {
	master, slave := pseudoTerminal(t)
	p := rtptest.EvenPorts(t, 1)
	text := strings.Replace(programtest.Small, "5004", fmt.Sprint(p[0]), 1) + "web: {listen: none}\nrtsp: {listen: none}\n"
	cmd := exec.Command(programtest.Program(t), "serve", "--config", programtest.Write(t, "c.yaml", text), "--sdp-dir", t.TempDir())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	said := make(chan string)
	go func() {
		defer close(said)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			said <- string(b[:n])
		}
	}()
	all := ""
	until := func(what string) {
		t.Helper()
		for deadline := time.After(time.Minute); !strings.Contains(all, what); {
			select {
			case s := <-said:
				all += s
			case <-deadline:
				t.Fatalf("it does not say %s:\n%s", what, all)
			case err := <-ended:
				t.Fatalf("it has ended, %v:\n%s", err, all)
			}
		}
	}
	until("watch: ffplay")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until("the configuration has not changed")
	go func() {
		for range said {
		}
	}()
	master.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it runs on without a terminal")
	}
}
