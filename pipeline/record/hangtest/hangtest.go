// SPDX-License-Identifier: Apache-2.0

// Package hangtest has a disk for tests that stops to answer, as one whose cable is pulled or whose server is gone: a file system over a
// folder, by FUSE (Documentation/filesystems/fuse.rst of Linux), served by a process of its own. A process cannot serve itself: what waits
// for the disk cannot be killed, and so would keep the server.
package hangtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The environment of the process that serves.
const (
	mountEnv = "TEGRACAST_TEST_HANG_MOUNT"
	backEnv  = "TEGRACAST_TEST_HANG_FOLDER"
)

// A Disk is such a file system.
type Disk struct {
	Dir  string // where it is mounted
	Back string // the folder behind it, which always answers
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// Mount mounts one for a test, whose package has a test TestHangingDiskServer that calls Serve. It answers.
func Mount(t *testing.T) *Disk {
	t.Helper()
	d := &Disk{Dir: t.TempDir(), Back: t.TempDir()}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil || os.Geteuid() != 0 {
		t.Skipf("NEEDS root and /dev/fuse, for a disk that hangs: %v", err)
	}
	_ = f.Close()
	d.cmd = exec.Command(os.Args[0], "-test.run=^TestHangingDiskServer$", "-test.timeout=10m")
	d.cmd.Env = append(os.Environ(), mountEnv+"="+d.Dir, backEnv+"="+d.Back)
	d.cmd.Stderr = os.Stderr
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Pull(t) })
	d.out = bufio.NewReader(out)
	switch line := d.answer(); {
	case strings.HasPrefix(line, "mount:"):
		t.Skipf("NEEDS FUSE mounts, for a disk that hangs: %s", line)
	case line != "ready\n":
		t.Fatalf("the server of the disk says %q", line)
	}
	return d
}

func (d *Disk) answer() string {
	line, _ := d.out.ReadString('\n')
	return line
}

func (d *Disk) tell(t *testing.T, word string) {
	t.Helper()
	if _, err := io.WriteString(d.in, word+"\n"); err != nil {
		t.Fatal(err)
	}
	if said := d.answer(); said != word+"\n" {
		t.Fatalf("the server of the disk says %q to %s", said, word)
	}
}

// Hang has what is written, and what is to be on the disk, wait from now on.
func (d *Disk) Hang(t *testing.T) { t.Helper(); d.tell(t, "hang") }

// HangWholly has all that is asked for wait from now on.
func (d *Disk) HangWholly(t *testing.T) { t.Helper(); d.tell(t, "wholly") }

// Answer has it answer again, also what waits.
func (d *Disk) Answer(t *testing.T) { t.Helper(); d.tell(t, "answer") }

// Pull ends it: what waits fails, and so does all that comes. A second Pull does nothing.
func (d *Disk) Pull(t *testing.T) {
	t.Helper()
	if d.cmd.ProcessState != nil {
		return
	}
	_ = d.cmd.Process.Kill() // the kernel ends the connection with it
	_ = d.cmd.Wait()
	if err := unix.Unmount(d.Dir, unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
}

// Serve serves the disk, if this is the process for that, until its parent ends.
func Serve(t *testing.T) {
	dir := os.Getenv(mountEnv)
	if dir == "" {
		return
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := unix.Mount("hangtest", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		fmt.Printf("mount: %v\n", err)
		os.Exit(1)
	}
	fmt.Print("ready\n")
	s := newServer(os.Getenv(backEnv))
	go leaveWithParent()
	go func() {
		fmt.Fprintf(os.Stderr, "the server of a disk that hangs has ended: %v\n", s.run(fd))
		os.Exit(1)
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); { // ends: with the parent
		switch in.Text() {
		case "hang":
			s.hang(false)
		case "wholly":
			s.hang(true)
		case "answer":
			s.answer()
		}
		fmt.Println(in.Text())
	}
	os.Exit(0)
}

// leaveWithParent ends the process when the parent ends: its descriptors stay open while one of its threads waits for the disk.
func leaveWithParent() {
	for parent := os.Getppid(); !Exiting(parent); {
		time.Sleep(100 * time.Millisecond)
	}
	os.Exit(0)
}

// Exiting reports whether a process has ended, but for threads that the kernel holds (proc_pid_status(5)): its first thread is a zombie, or
// is to be killed, as exit_group(2) has all others killed.
func Exiting(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, state, _ := strings.Cut(string(text), "\nState:\t")
	_, pending, is := strings.Cut(state, "\nSigPnd:\t")
	var signals uint64
	if _, bad := fmt.Sscanf(pending, "%x", &signals); err != nil || !is || bad != nil {
		return true
	}
	return strings.ContainsAny(state[:1], "ZX") || signals&(1<<(unix.SIGKILL-1)) != 0
}
