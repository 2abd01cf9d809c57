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
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// An attempt is something that the process tries. It returns nil if it could.
type attempt struct {
	try  func(folder string) error // with the files old and other
	fail error                     // in a sandbox; nil: it may
}

var attempts = map[string]attempt{
	"read a file":             {func(string) error { return reads("/proc/self/status") }, nil},
	"read a listed file":      {func(folder string) error { return reads(filepath.Join(folder, "old")) }, nil},
	"read behind a link":      {func(folder string) error { return reads(filepath.Join(folder, "link")) }, nil},
	"read a file elsewhere":   {func(folder string) error { return reads(folder + "-elsewhere/old") }, unix.EACCES},
	"read a file by its root": {func(folder string) error { return reads("/proc/self/root" + folder + "-elsewhere/old") }, unix.EACCES},
	"read the users":          {func(string) error { return reads("/etc/passwd") }, unix.EACCES},
	"list a folder":           {func(folder string) error { _, err := os.ReadDir(folder); return err }, nil},
	"list the root":           {func(string) error { _, err := os.ReadDir("/"); return err }, unix.EACCES},
	"start threads":           {func(string) error { return startThreads(8) }, nil},
	"use 32 MiB":              {func(string) error { return use(32<<20, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS) }, nil},
	"use 1 GiB":               {func(string) error { return use(1<<30, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS) }, unix.ENOMEM},
	"use shared memory":       {func(string) error { return use(1<<30, unix.MAP_SHARED|unix.MAP_ANONYMOUS) }, unix.EPERM},
	"use a stack that grows":  {func(string) error { return use(1<<30, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_GROWSDOWN) }, unix.EPERM},
	"map a file":              {mapFile, nil},
	"make a file": {func(folder string) error {
		return os.WriteFile(filepath.Join(folder, "new"), []byte("x"), 0o600)
	}, unix.EPERM},
	"write to a file":         {func(folder string) error { return opens(filepath.Join(folder, "old"), os.O_RDWR) }, unix.EPERM},
	"write to a file outside": {func(folder string) error { return opens(folder+"-elsewhere/old", os.O_WRONLY) }, unix.EPERM},
	"rename a file": {func(folder string) error {
		return os.Rename(filepath.Join(folder, "other"), filepath.Join(folder, "renamed"))
	}, unix.EPERM},
	"connect by TCP": {func(string) error {
		_, err := net.Dial("tcp", "127.0.0.1:9")
		if errors.Is(err, unix.ECONNREFUSED) {
			return nil // it was tried
		}
		return err
	}, unix.EPERM},
	"make a Unix socket":       {func(string) error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err }, unix.EPERM},
	"make a datagram socket":   {func(string) error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0); return err }, unix.EPERM},
	"connect a socket":         {call(unix.SYS_CONNECT, nobody), unix.EPERM},
	"listen":                   {listen, unix.EPERM},
	"name a thread":            {func(string) error { return os.WriteFile("/proc/thread-self/comm", []byte("x"), 0) }, unix.EPERM},
	"start a program":          {func(string) error { return exec.Command("/bin/true").Run() }, unix.EPERM},
	"start by clone3":          {call(unix.SYS_CLONE3, nobody), unix.ENOSYS},
	"call a driver":            {func(string) error { _, err := unix.IoctlGetInt(1, unix.TIOCINQ); return err }, unix.EPERM},
	"make a namespace":         {func(string) error { return unix.Unshare(unix.CLONE_NEWUSER) }, unix.EPERM},
	"set up an io_uring":       {call(unix.SYS_IO_URING_SETUP, nobody), unix.EPERM},
	"use keys":                 {call(unix.SYS_KEYCTL, func() int { return 99 }), unix.EPERM},
	"change its user":          {func(string) error { return unix.Setresuid(-1, -1, -1) }, unix.EPERM},
	"raise its memory":         {func(string) error { return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: 1 << 40, Max: 1 << 40}) }, unix.EPERM},
	"have a capability":        {func(string) error { return capable() }, errWeak},
	"be as nice as its parent": {func(string) error { return nice() }, errNicer},
	"live longest":             {func(string) error { return score() }, errScore},

	"signal its parent":             {func(string) error { return unix.Kill(unix.Getppid(), 0) }, unix.EPERM},
	"signal a thread of its parent": {call(unix.SYS_TGKILL, unix.Getppid, unix.Getppid), unix.EPERM},
	"signal a thread":               {call(unix.SYS_TKILL, unix.Gettid), unix.EPERM},
	"signal itself":                 {call(unix.SYS_TGKILL, unix.Getpid, unix.Getpid), nil},
	"signal by a descriptor":        {func(string) error { _, err := unix.FcntlInt(1, unix.F_SETOWN, unix.Getppid()); return err }, unix.EPERM},
	"choose a descriptor's signal":  {func(string) error { _, err := unix.FcntlInt(1, unix.F_SETSIG, int(unix.SIGTERM)); return err }, unix.EPERM},
	"outlive its parent":            {func(string) error { return unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0) }, unix.EPERM},
	"limit its parent":              {call(unix.SYS_PRLIMIT64, unix.Getppid, nobody), unix.EPERM},
	"see its own limits":            {call(unix.SYS_PRLIMIT64, unix.Getpid, nobody), nil},
	"move its parent":               {call(unix.SYS_SCHED_SETAFFINITY, unix.Getppid), unix.EPERM},
	"move itself":                   {move, nil},
	"schedule its parent":           {call(unix.SYS_SCHED_SETSCHEDULER, unix.Getppid, nobody), unix.EPERM},
	"schedule its parent, params":   {call(unix.SYS_SCHED_SETPARAM, unix.Getppid), unix.EPERM},
	"schedule its parent, attr":     {call(unix.SYS_SCHED_SETATTR, unix.Getppid), unix.EPERM},
	"read other memory":             {func(string) error { _, err := unix.ProcessVMReadv(unix.Getppid(), nil, nil, 0); return err }, unix.EPERM},
	"open its parent's memory":      {openMemory, unix.EACCES},
	"read its parent's environment": {func(string) error { return visible(reads(parents("environ"))) }, unix.EACCES},
	"see its parent's descriptors":  {func(string) error { _, err := os.Readlink(parents("fd/0")); return visible(err) }, unix.EACCES},
}

var errNicer, errScore, errWeak = errors.New("nicer"), errors.New("ends first"), errors.New("no capability")

// listen listens at an abstract socket, as CUDA does.
func listen(string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@sandbox-%d", unix.Getpid())}), unix.Listen(fd, 1))
}

func nobody() int { return 0 }

// call makes a system call whose first arguments are numbers, and the others 0. An error that is not a filter's is the
// call's own, so the call was made.
func call(number uintptr, arguments ...func() int) func(string) error {
	return func(string) error {
		var a [6]uintptr
		for i, number := range arguments {
			a[i] = uintptr(number())
		}
		_, _, e := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
		if e == unix.EPERM || e == unix.ENOSYS {
			return e
		}
		return nil
	}
}

func opens(path string, flags int) error {
	f, err := os.OpenFile(path, flags, 0)
	if err == nil {
		err = f.Close()
	}
	return err
}

func reads(path string) error { return opens(path, os.O_RDONLY) }

// parents returns the path of a file of the parent in /proc.
func parents(name string) string { return fmt.Sprintf("/proc/%d/%s", unix.Getppid(), name) }

// openMemory opens the parent's memory by any of its threads.
func openMemory(string) error {
	files, _ := filepath.Glob(parents("task/*/mem")) // no error: the pattern is good
	for _, file := range files {
		if reads(file) == nil {
			return nil
		}
	}
	return unix.EACCES
}

// visible is refused for a file of a process that a mount with hidepid hides.
func visible(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return unix.EACCES
	}
	return err
}

func mapFile(folder string) error {
	f, err := os.Open(filepath.Join(folder, "old"))
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err == nil {
		err = unix.Munmap(b)
	}
	return err
}

func move(string) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return err
	}
	return errors.Join(unix.SchedSetaffinity(0, &set), unix.SchedSetaffinity(unix.Getpid(), &set))
}

// startThreads has n threads at a time.
func startThreads(n int) error {
	done, end := make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			done <- struct{}{}
			<-end // ends: startThreads closes it
		}()
	}
	for range n {
		<-done // ends: each thread sends
	}
	close(end)
	return nil
}

func use(bytes, flags int) error {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, flags)
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
	return errors.Join(err, errWeak)
}

func nice() error {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err == nil && fmt.Sprint(n) == os.Getenv("SANDBOX_PRIORITY") {
		return nil
	}
	return errors.Join(err, errNicer)
}

// score fails if the process is the first to end when memory runs out.
func score() error {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err == nil && string(text) == "1000\n" {
		return errScore
	}
	return err
}

// TestMain runs the attempts in place of the tests in the process that try starts.
func TestMain(m *testing.M) {
	mode, folder := os.Getenv("SANDBOX"), os.Getenv("SANDBOX_FOLDER")
	var err error
	switch mode {
	case "":
		os.Exit(m.Run())
	case "nested": // the process has no CAP_SETPCAP
		var out []byte
		if out, err = try("none", folder); err == nil {
			_, err = os.Stdout.Write(out)
		}
	case "threads", "threads without limit":
		if mode == "threads" {
			err = Enter(Limits{Tasks: 1})
		}
		if err == nil {
			err = startThreads(4 * spareTasks)
		}
	case "none", "cpu", "device":
		if mode != "none" {
			err = Enter(Limits{Memory: 1 << 30, Device: mode == "device"}) // with room for the stacks of the threads that a busy machine keeps
		}
		if err == nil {
			_, err = io.Copy(io.Discard, os.Stdin) // ends: Start has returned
		}
		if err == nil {
			err = attemptAll(folder)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// attemptAll writes the errors of the attempts to stdout.
func attemptAll(folder string) error {
	results := map[string]string{}
	for what, a := range attempts {
		if err := a.try(folder); err != nil {
			results[what] = err.Error()
		}
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}

// try starts this program in a mode in a sandbox, and returns what it writes.
func try(mode, folder string) ([]byte, error) {
	c := process(mode, folder)
	p := Paths{Files: []string{filepath.Join(folder, "link")}}
	if mode == "device" {
		p.Writes = []string{folder, "/proc"}
	}
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	wait, err := Start(c, p)
	if err = errors.Join(err, in.Close()); wait == nil {
		return nil, err
	}
	if err := errors.Join(err, wait()); err != nil {
		return nil, fmt.Errorf("%w: %s", err, errs.String())
	}
	return out.Bytes(), nil
}

func process(mode, folder string) *exec.Cmd {
	c := exec.Command("/proc/self/exe")
	n, _ := unix.Getpriority(unix.PRIO_PROCESS, 0) // no error: it is this thread's own
	c.Env = []string{"SANDBOX=" + mode, "SANDBOX_FOLDER=" + folder, fmt.Sprint("SANDBOX_PRIORITY=", n)}
	return c
}

// files returns a folder with files, beside one with files and one to which a link leads.
func files(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "listed")
	var err error
	for _, in := range []string{folder, folder + "-elsewhere", folder + "-linked"} {
		err = errors.Join(err, os.Mkdir(in, 0o700), os.WriteFile(filepath.Join(in, "old"), nil, 0o600), os.WriteFile(filepath.Join(in, "other"), nil, 0o600))
	}
	if err := errors.Join(err, os.Symlink(folder+"-linked/old", filepath.Join(folder, "link"))); err != nil {
		t.Fatal(err)
	}
	return folder
}

// unlimited returns the errors of the attempts of a process without a sandbox.
func unlimited(t *testing.T) (results map[string]string) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil { // as before the first Start
		t.Fatal(err)
	}
	out, err := process("none", files(t)).Output()
	if err == nil {
		err = json.Unmarshal(out, &results)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return results
}

// without lists attempts that fail in the same way without a sandbox: a user other than root has no capabilities, and Yama
// may refuse the parent's memory.
func without(t *testing.T) (list []string) {
	t.Helper()
	if n, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && n == 1 {
		t.Skip("NEEDS a priority that can be lowered: the tests run with nice 19")
	}
	if unix.Geteuid() == 0 {
		return nil
	}
	if text, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && string(text) != "0\n" {
		list = append(list, "open its parent's memory")
	}
	return append(list, "have a capability")
}

func TestAProcessHasFewRights(t *testing.T) {
	byDevice := map[string]error{
		"make a file": nil, "write to a file": nil, "rename a file": nil, "call a driver": nil, "use shared memory": nil,
		"make a Unix socket": nil, "listen": nil, "name a thread": nil, "write to a file outside": unix.EACCES,
	}
	byLandlock := []string{"read a file elsewhere", "read a file by its root", "read the users", "list the root"}
	same, plain := without(t), unlimited(t)
	for _, mode := range []string{"cpu", "device"} {
		out, err := try(mode, files(t))
		if err != nil {
			t.Fatal(err)
		}
		var results map[string]string
		if err := json.Unmarshal(out, &results); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for what, a := range attempts {
			fail := a.fail
			if changed, is := byDevice[what]; is && mode == "device" {
				fail = changed
			}
			if landlock() == 0 && (slices.Contains(byLandlock, what) || errors.Is(fail, unix.EACCES) && what == "write to a file outside") {
				t.Logf("NEEDS Landlock in the kernel: %s", what)
				continue
			}
			result, failed := results[what]
			switch {
			case fail == nil && failed:
				t.Errorf("%s: it could not %s: %s", mode, what, result)
			case fail != nil && !strings.Contains(result, fail.Error()):
				t.Errorf("%s: %s: %q, and must fail: %v", mode, what, result, fail)
			case fail != nil && result == plain[what] && !slices.Contains(same, what):
				t.Errorf("%s: %s: %q also without a sandbox", mode, what, result)
			}
		}
	}
	if is, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || is != 0 {
		t.Errorf("this process can be traced: %d %v", is, err)
	}
}

// TestRootWithoutRightsStartsAProcess starts a process from one that has no capabilities, as in some containers.
func TestRootWithoutRightsStartsAProcess(t *testing.T) {
	out, err := try("nested", files(t))
	if err != nil || !strings.Contains(string(out), errWeak.Error()) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestThreadsAreLimited starts threads as a user other than root, whom the limit does not concern.
func TestThreadsAreLimited(t *testing.T) {
	for mode, ends := range map[string]bool{"threads": true, "threads without limit": false} {
		c := process(mode, "")
		if unix.Geteuid() == 0 {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := c.CombinedOutput()
		text := string(out) // the Go runtime's, with or without C
		limited := strings.Contains(text, "failed to create new OS thread") || strings.Contains(text, "pthread_create failed: Resource temporarily unavailable")
		if limited != ends || ends != (err != nil) {
			t.Errorf("%s: %v: %.200s", mode, err, out)
		}
	}
}

// TestEveryCallIsKnown checks the names of the calls, which differ between the architectures.
func TestEveryCallIsKnown(t *testing.T) {
	for _, name := range []string{"amd64", "arm64"} {
		known, err := arch.GetInfo(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, device := range []bool{false, true} {
			filter := newFilter(known, device, 1)
			allowed := filter.Policy.Syscalls[0].Names
			for _, call := range filter.Policy.Syscalls[0].NamesWithCondtions {
				allowed = append(allowed, call.Name)
			}
			for _, call := range append(allowed, filter.Policy.Syscalls[1].Names...) {
				if _, is := known.SyscallNames[call]; !is {
					t.Errorf("%s lacks %s, and the list of old calls does not say so", name, call)
				}
			}
			// Each architecture has these, or the first of two names; the Go runtime and the C library need them.
			for _, call := range []string{"newfstatat fstatat", "openat", "epoll_pwait", "readlinkat", "faccessat", "ppoll", "mmap", "clone"} {
				if !slices.ContainsFunc(strings.Fields(call), func(one string) bool { return slices.Contains(allowed, one) }) {
					t.Errorf("%s: %s is not allowed", name, call)
				}
			}
			if _, err := filter.Policy.Assemble(); err != nil && name == runtime.GOARCH {
				t.Error(err)
			}
		}
	}
}

// TestTheParentWorksOn checks what a program needs of /proc after its memory has been closed to others of its user.
func TestTheParentWorksOn(t *testing.T) {
	if _, err := try("none", files(t)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	link := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	target, err := os.Readlink(link)
	if err != nil || filepath.Base(target) != filepath.Base(os.Args[0]) {
		t.Errorf("%s %v", target, err)
	}
	for _, path := range []string{link, "/proc/self/maps", "/proc/self/smaps", "/proc/self/fd", "/proc/self/exe", "/proc/self/limits", "/proc/thread-self/net/udp"} {
		if err := reads(path); err != nil {
			t.Error(err)
		}
	}
	if err := opens("/proc/thread-self/comm", os.O_WRONLY); err != nil {
		t.Error(err)
	}
	if out, err := process("none", files(t)).Output(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAProcessEndsWithItsParent starts a process whose parent, the thread, lives on, and one whose starter is killed.
func TestAProcessEndsWithItsParent(t *testing.T) {
	if pipe := os.Getenv("SANDBOX_PARENT"); pipe != "" {
		c := exec.Command("/bin/sleep", "100000") // it notices nothing
		if _, err := Start(c, Paths{}); err != nil {
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
			_ = unix.Kill(pid, unix.SIGKILL)
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
