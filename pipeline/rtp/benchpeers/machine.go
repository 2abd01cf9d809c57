// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// machine describes the machine that the figures are from.
func machine() string {
	model := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	var u unix.Utsname
	_ = unix.Uname(&u) // cannot fail with a valid pointer
	return fmt.Sprintf("%s, %d cores, Linux %s, %s", model, runtime.NumCPU(), unix.ByteSliceToString(u.Release[:]), runtime.Version())
}

func notify(c chan<- os.Signal) { signal.Notify(c, syscall.SIGTERM) }
