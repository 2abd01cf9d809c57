// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// attempts are what the process tries. Each returns nil if it could.
var attempts = map[string]func(folder string) error{
	"read a file": func(string) error {
		_, err := os.ReadFile("/proc/self/status")
		return err
	},
	"list a folder": func(folder string) error {
		_, err := os.ReadDir(folder)
		return err
	},
	"start threads": func(string) error {
		done := make(chan struct{}, 8)
		for range 8 {
			go func() {
				runtime.LockOSThread()
				time.Sleep(time.Millisecond)
				done <- struct{}{}
			}()
		}
		for range 8 {
			<-done // ends: each thread sends
		}
		return nil
	},
	"use 32 MiB": func(string) error { return use(32 << 20) },
	"use 1 GiB":  func(string) error { return use(1 << 30) },
	"make a file": func(folder string) error {
		return os.WriteFile(filepath.Join(folder, "new"), []byte("x"), 0o600)
	},
	"write to a file": func(folder string) error {
		f, err := os.OpenFile(filepath.Join(folder, "old"), os.O_RDWR, 0)
		if err == nil {
			err = f.Close()
		}
		return err
	},
	"rename a file": func(folder string) error {
		return os.Rename(filepath.Join(folder, "other"), filepath.Join(folder, "renamed"))
	},
	"connect by TCP": func(string) error {
		_, err := net.Dial("tcp", "127.0.0.1:9")
		if errors.Is(err, unix.ECONNREFUSED) {
			return nil // it was tried
		}
		return err
	},
	"make a Unix socket": func(string) error {
		_, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		return err
	},
	"start a program":     func(string) error { return exec.Command("/bin/true").Run() },
	"signal its parent":   func(string) error { return unix.Kill(unix.Getppid(), 0) },
	"call a driver":       func(string) error { _, err := unix.IoctlGetInt(1, unix.TIOCINQ); return err },
	"read other memory":   func(string) error { _, err := unix.ProcessVMReadv(unix.Getppid(), nil, nil, 0); return err },
	"make a namespace":    func(string) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"set up an io_uring":  func(string) error { _, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0); return refused(e) },
	"load a BPF program":  func(string) error { _, _, e := unix.Syscall(unix.SYS_BPF, 99, 0, 0); return refused(e) },
	"start by clone3":     func(string) error { _, _, e := unix.Syscall(unix.SYS_CLONE3, 0, 0, 0); return missing(e) },
	"change its user":     func(string) error { return unix.Setresuid(65534, 65534, 65534) },
	"raise its memory":    func(string) error { return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: 1 << 40, Max: 1 << 40}) },
	"have a capability":   func(string) error { return capable() },
	"be as nice as tests": func(string) error { return nice() },
}

// refused returns EPERM alone: another error is the call's own, so the call was made.
func refused(e syscall.Errno) error {
	if e == unix.EPERM {
		return e
	}
	return nil
}

// missing is refused for a call that must look as if the kernel did not have it.
func missing(e syscall.Errno) error {
	if e == unix.ENOSYS {
		return e
	}
	return nil
}

func use(bytes int) error {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err == nil {
		err = unix.Munmap(b)
	}
	return err
}

func capable() error {
	text, err := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.HasPrefix(name, "Cap") && name != "CapBnd" && strings.Trim(value, "\t\n0") != "" {
			return nil
		}
	}
	return errors.Join(err, errors.New("no capability"))
}

func nice() error {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err == nil && 20-n < lowered {
		return nil
	}
	return errors.Join(err, errors.New("nicer"))
}

// TestMain runs the attempts in place of the tests in the process that try starts.
func TestMain(m *testing.M) {
	folder, is := os.LookupEnv("SANDBOX_FOLDER")
	if !is {
		os.Exit(m.Run())
	}
	if err := Enter(Limits{Memory: 512 << 20, Device: os.Getenv("SANDBOX_DEVICE") != ""}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	results := map[string]string{}
	for what, attempt := range attempts {
		if err := attempt(folder); err != nil {
			results[what] = err.Error()
		}
	}
	text, err := json.Marshal(results)
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// try returns the errors of the attempts in a sandbox.
func try(t *testing.T, device string) (results map[string]string) {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"old", "other"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("/proc/self/exe")
	var out, errs bytes.Buffer
	c.Env, c.Stdout, c.Stderr = []string{"SANDBOX_FOLDER=" + folder, "SANDBOX_DEVICE=" + device}, &out, &errs
	wait, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := wait(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		t.Fatalf("%v: %s %s", err, out.String(), errs.String())
	}
	return results
}

func TestAProcessHasFewRights(t *testing.T) {
	may := map[string]bool{"read a file": true, "list a folder": true, "start threads": true, "use 32 MiB": true}
	for _, device := range []string{"", "yes"} {
		if device != "" {
			may["make a file"], may["write to a file"], may["rename a file"], may["call a driver"] = true, true, true, true
		}
		results := try(t, device)
		for what := range attempts {
			if why, failed := results[what]; failed == may[what] {
				t.Errorf("device %q: it could %s: %t, and must be %t: %s", device, what, !failed, may[what], why)
			}
		}
	}
}

// TestAProcessEndsWithItsParent starts a process whose parent, the thread, lives on, and one whose starter is killed.
func TestAProcessEndsWithItsParent(t *testing.T) {
	if pipe := os.Getenv("SANDBOX_PARENT"); pipe != "" {
		c := exec.Command("/bin/cat") // until its input ends
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if _, err := Start(c); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("process %d\n", c.Process.Pid)
		select {}
	}
	parent := exec.Command("/proc/self/exe", "-test.run=^TestAProcessEndsWithItsParent$")
	parent.Env = append(os.Environ(), "SANDBOX_PARENT=yes")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanf(out, "process %d\n", &pid); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, 0); err != nil {
		t.Fatalf("the process does not run: %v", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	_ = parent.Wait()
	for end := time.Now().Add(time.Minute); running(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the process outlives its parent")
		}
	}
}

// running reports whether a process runs and is not the rest of one that has ended.
func running(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}
