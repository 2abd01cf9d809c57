// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter returns a channel of functions that are called on a thread that lives as long as this process: they start
// child processes that must not outlive the process. The kernel sends a child's death signal when the thread that
// started it ends, not the process (prctl(2), PR_SET_PDEATHSIG), and a thread ends with the goroutine that is locked to
// it, such as newNetwork's.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// startChild starts a process, in its own process group, that ends with this one even if this one is killed.
func startChild(c *exec.Cmd) error {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	starter() <- func() { started <- c.Start() }
	return <-started
}
