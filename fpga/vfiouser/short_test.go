// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	vt "github.com/tegracast/tegracast/fpga/vfiouser/vfiousertest"
)

// TestShortOfDescriptors checks that a client that connects while the process has no free descriptor is served once there
// is one.
func TestShortOfDescriptors(t *testing.T) {
	d := serve(t)
	free := exhaust(t)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: d.Path(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	time.Sleep(50 * time.Millisecond)
	free()
	if _, err := conn.Write(vt.Frame(1, vt.Reset, 0, nil)); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 64)); n == 0 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// exhaust leaves one free descriptor until free is called.
func exhaust(t *testing.T) (free func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 128, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	var taken []*os.File
	free = func() {
		for _, f := range taken {
			f.Close()
		}
		taken = nil
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(free)
	for range 128 {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, unix.EMFILE) && len(taken) > 0 {
			taken[0].Close()
			taken = taken[1:]
			return free
		}
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, f)
	}
	t.Fatal("there are descriptors left")
	return free
}
