// SPDX-License-Identifier: Apache-2.0

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

// Environment of the serving process.
const (
	mountEnv = "TEGRACAST_TEST_HANG_MOUNT"
	backEnv  = "TEGRACAST_TEST_HANG_FOLDER"
)

// A Disk is a disk that a test can make hang.
type Disk struct {
	Dir  string // mount point
	Back string // the folder behind it, which always responds
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// Mount mounts a disk for a test, which responds until the test makes it hang. The test's package must contain a test
// TestHangingDiskServer that calls Serve. Mount skips the test without root, /dev/fuse or the permission to mount.
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

func (d *Disk) command(t *testing.T, word string) {
	t.Helper()
	if _, err := io.WriteString(d.in, word+"\n"); err != nil {
		t.Fatal(err)
	}
	if said := d.answer(); said != word+"\n" {
		t.Fatalf("the server of the disk says %q to %s", said, word)
	}
}

// Hang makes requests wait that write, sync, create or change a file, from now on. Other requests are still answered.
func (d *Disk) Hang(t *testing.T) { t.Helper(); d.command(t, "hang") }

// HangWholly makes all requests wait from now on.
func (d *Disk) HangWholly(t *testing.T) { t.Helper(); d.command(t, "wholly") }

// Answer makes the disk respond again, including to waiting requests.
func (d *Disk) Answer(t *testing.T) { t.Helper(); d.command(t, "answer") }

// Pull removes the disk: waiting requests and all later ones fail. Further calls do nothing.
func (d *Disk) Pull(t *testing.T) {
	t.Helper()
	if d.cmd.ProcessState != nil {
		return
	}
	_ = d.cmd.Process.Kill() // the kernel then ends the connection
	_ = d.cmd.Wait()
	if err := unix.Unmount(d.Dir, unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
}

// Serve serves the disk if this process was started by Mount, and exits when its parent process ends. In any other
// process, it does nothing.
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
		fmt.Fprintf(os.Stderr, "the server of a disk that hangs has ended: %v\n", s.serveRequests(fd))
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

// leaveWithParent ends the process when its parent ends. The parent's descriptors stay open while one of its threads
// waits for the disk.
func leaveWithParent() {
	for parent := os.Getppid(); !Exiting(parent); {
		time.Sleep(100 * time.Millisecond)
	}
	os.Exit(0)
}

// Exiting reports whether a process has ended, apart from threads held by the kernel (proc_pid_status(5)), that is,
// whether its first thread is gone, is a zombie or is about to be killed. exit_group(2) kills all other threads in this
// way.
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
