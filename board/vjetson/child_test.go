// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onThreadThatEnds calls f on a thread of its own, like that of a network namespace, and returns when the thread has
// ended.
func onThreadThatEnds(t *testing.T, f func()) {
	t.Helper()
	thread := make(chan int)
	go func() {
		runtime.LockOSThread() // never unlocked
		id := unix.Gettid()
		if id == os.Getpid() {
			id = 0 // the process's first thread never ends
		} else {
			f()
		}
		thread <- id
	}()
	id := <-thread
	if id == 0 {
		onThreadThatEnds(t, f) // the first thread is occupied now
		return
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat("/proc/self/task/" + strconv.Itoa(id)); os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the thread does not end")
		}
	}
}

// TestOutlivesTheThread checks that a machine does not end with the thread that started it.
func TestOutlivesTheThread(t *testing.T) {
	var m *Machine
	var err error
	onThreadThatEnds(t, func() { m, err = Start(t.Context(), Config{}) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(t.Context(), "true"); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
