// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lowered is by how much the process is nicer than the program that starts it, so that the program's streams come first.
const lowered = 10

// Start starts a command, which may use paths, and returns a function that waits for its end, which must be called. The
// command's SysProcAttr is replaced. Nobody but root can look into this program's memory or trace it afterwards.
func Start(c *exec.Cmd, p Paths) (wait func() error, err error) {
	// The process has the same user: without this it could open this program's memory and descriptors in /proc.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("starting %s: protection of memory: %w", c.Path, err)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // a terminal's signals are for the parent
	started, scored, ended := make(chan error, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		// The process inherits the rights of the thread that starts it, and Pdeathsig watches this thread. It ends with
		// this function, because it stays locked.
		runtime.LockOSThread()
		err := dropRights()
		if err == nil {
			err = restrict(c.Path, c.Env, p)
		}
		if err == nil {
			err = c.Start()
		}
		if started <- err; err == nil {
			<-scored          // ends: Start closes it
			ended <- c.Wait() // ends: the process ends with its parent
		}
	}()
	if err := <-started; err != nil { // ends: the function above sends
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	expend(c.Process.Pid)
	close(scored)
	return func() error { return <-ended }, nil // ends: the process ends
}

// expend makes a process the first that the kernel ends when memory runs out. Its own thread could not: it may not write
// to /proc. Raising the score needs no right; where it fails, the process keeps the parent's.
func expend(pid int) {
	for range 10 { // just after the start, the file may not yet belong to the user
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0); !errors.Is(err, os.ErrPermission) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// dropRights takes from the calling thread what a program that it starts would inherit.
func dropRights() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	// Kernels before 4.3 have no ambient capabilities.
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	// Root's programs get all capabilities of the bounding set, which only a process with CAP_SETPCAP can change; others'
	// get none.
	for c := range uintptr(64) {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil || has == 0 {
			continue // the kernel does not know it, or it is gone already
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && unix.Geteuid() == 0 {
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return fmt.Errorf("priority: %w", err)
	}
	nice = 20 - nice // the system call returns 20 - nice
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, min(nice+lowered, 19)); err != nil {
		return fmt.Errorf("priority: %w", err)
	}
	return nil
}
