// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestObjects checks what the document says about objects, flows and the environment (chapters 2, 3 and 5).
func TestObjects(t *testing.T) {
	for name, f := range map[string]func(*testing.T){
		"transport self":                   overSelf,
		"transport tcp":                    func(t *testing.T) { between(t, "tcp", true) },
		"transport sysv":                   func(t *testing.T) { between(t, "sysv,cma", false) },
		"transport posix":                  func(t *testing.T) { between(t, "posix,cma", false) },
		"all transports":                   func(t *testing.T) { between(t, "all", true) },
		"N receivers times M workers":      receiversTimesWorkers,
		"a slow consumer holds up nobody":  slowConsumer,
		"UCX_NET_DEVICES":                  netDevices,
		"the library is missing":           missing,
		"the library is another one":       anotherLibrary,
		"the environment reaches C":        environmentReaches,
		"signals stay Go's":                signalsStay,
		"descriptors":                      fewDescriptors,
		"the standard output stays ours":   outputStays,
		"devices' memory is named as such": memoryTypes,
	} {
		t.Run(name, f)
	}
}

// between sends to another process and back over the given transports, connected by the worker's address and, if TCP is
// among them, through the listener.
func between(t *testing.T, transports string, byListener bool) {
	t.Setenv("UCX_TLS", transports)
	c := open(t)
	w := worker(t, c)
	echoes, sums := collect(t, w, idEcho), collect(t, w, idSum)
	p := start(t)
	endpoints := []*Endpoint{meet(t, w, p).Endpoint}
	if byListener {
		endpoints = append(endpoints, dial(t, w, p.addr).Endpoint)
	}
	for _, e := range endpoints {
		for _, n := range []int{0, 1, 1000, 8000, 200_000} {
			send(t, e, &Outgoing{ID: idEcho, Header: pattern(n / 100), Data: [][]byte{pattern(n)}, Protocol: Eager})
			if got := next(t, echoes, "echo"); !bytes.Equal(got.data, pattern(n)) || !bytes.Equal(got.header, pattern(n/100)) || got.from != e {
				t.Errorf("%v: header %d, data %d of %d bytes from %v", e, len(got.header), len(got.data), n, got.from)
			}
		}
		for _, n := range []int{1, 5000, 1 << 20, 25 << 20} {
			b := mapped(t, n)
			copy(b, pattern(n))
			m := mapIn(t, c, b)
			sent := send(t, e, &Outgoing{ID: idSum, Data: [][]byte{b}, Memory: m, Protocol: Rendezvous})
			if got := next(t, sums, "checksum"); binary.LittleEndian.Uint32(got.header) != crc32.ChecksumIEEE(b) {
				t.Errorf("%v: %d bytes arrive changed", e, n)
			}
			tidy(t, next(t, sent, "end of the send"))
		}
	}
}

// overSelf sends from a worker to itself.
func overSelf(t *testing.T) {
	t.Setenv("UCX_TLS", "self")
	w := worker(t, open(t))
	address, err := w.Address()
	if err != nil {
		t.Fatal(err)
	}
	e, err := w.Connect(address, EndpointOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Abort)
	got := collect(t, w, 1)
	for _, protocol := range []Protocol{Eager, Rendezvous} {
		for _, n := range []int{1, 5000, 1 << 20} {
			send(t, e, &Outgoing{ID: 1, Data: [][]byte{pattern(n)}, Protocol: protocol})
			if p := next(t, got, "message"); !bytes.Equal(p.data, pattern(n)) || p.rendezvous != (protocol == Rendezvous) {
				t.Errorf("protocol %d, %d bytes: %d arrive, rendezvous %v", protocol, n, len(p.data), p.rendezvous)
			}
		}
	}
}

func receiversTimesWorkers(t *testing.T) {
	c := open(t)
	const n = 3
	for range n {
		server := worker(t, c)
		got := collect(t, server, 1)
		for range n {
			client, _ := joined(t, worker(t, c), server)
			send(t, client.Endpoint, &Outgoing{ID: 1, Data: [][]byte{pattern(100_000)}})
			if p := next(t, got, "message"); !bytes.Equal(p.data, pattern(100_000)) {
				t.Error("the data differs")
			}
		}
	}
}

func slowConsumer(t *testing.T) {
	c := open(t)
	a, slow, quick := worker(t, c), worker(t, c), worker(t, c)
	release := make(chan struct{})
	handle(t, slow, 1, func(*Message) { <-release }) // breaks the rule, as an application might
	got := collect(t, quick, 1)
	toSlow, _ := joined(t, a, slow)
	toQuick, _ := joined(t, a, quick)
	for range 500 {
		if err := toSlow.Send(&Outgoing{ID: 1, Data: [][]byte{pattern(5000)}, Protocol: Eager}, nil); err != nil {
			t.Fatal(err)
		}
		send(t, toQuick.Endpoint, &Outgoing{ID: 1, Data: [][]byte{pattern(5000)}, Protocol: Eager})
		next(t, got, "message beside a slow consumer")
	}
	close(release)
}

func netDevices(t *testing.T) {
	t.Setenv("UCX_TLS", "tcp")
	t.Setenv("UCX_NET_DEVICES", "lo")
	c := open(t)
	a, b := worker(t, c), worker(t, c)
	got := collect(t, b, 1)
	client, _ := joined(t, a, b)
	send(t, client.Endpoint, &Outgoing{ID: 1, Data: [][]byte{pattern(1 << 20)}, Protocol: Rendezvous})
	if p := next(t, got, "message"); !bytes.Equal(p.data, pattern(1<<20)) {
		t.Error("the data differs")
	}
}

func missing(t *testing.T) {
	_, err := Open(Config{Library: "libnosuch.so.0"})
	wantError(t, err, ErrNoLibrary)
	if err == nil || !strings.Contains(err.Error(), "install ") {
		t.Errorf("%v does not say what to do", err)
	}
}

// TestRelease checks that a release that is too old or unknown is refused, with what to do, when the library is opened.
func TestRelease(t *testing.T) {
	var source strings.Builder
	for _, name := range symbolNames[1:] {
		fmt.Fprintf(&source, "int %s(void) { return -22; }\n", name)
	}
	source.WriteString("const char *ucp_get_version_string(void) { return RELEASE; }\n")
	file := filepath.Join(t.TempDir(), "ucp.c")
	if err := os.WriteFile(file, []byte(source.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for release, suffices := range map[string]bool{"1.10.0": false, "1.11.2": false, "1.12.1": true, "1.18.1": true, "2.0.0": false, "": false} {
		library := filepath.Join(t.TempDir(), "libucp.so.0")
		if out, err := exec.Command("gcc", "-shared", "-fPIC", "-DRELEASE=\""+release+"\"", "-o", library, file).CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v (make setup-test installs gcc)\n%s", err, out)
		}
		_, err := Open(Config{Library: library})
		if refused := errors.Is(err, ErrNoLibrary); err == nil || refused == suffices || refused && !strings.Contains(err.Error(), "install NVIDIA's UCX") {
			t.Errorf("release %q: %v", release, err)
		}
	}
}

func anotherLibrary(t *testing.T) {
	_, err := Open(Config{Library: "libm.so.6"})
	wantError(t, err, ErrNoLibrary)
}

// inChild runs the test again in a separate process with additional environment variables, and returns its output.
func inChild(t *testing.T, env ...string) (out, errs string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(append(os.Environ(), "TEGRACAST_UCX_CHILD=1"), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s%s", err, &stdout, &stderr)
	}
	return stdout.String(), stderr.String()
}

func isChild() bool { return os.Getenv("TEGRACAST_UCX_CHILD") != "" }

func environmentReaches(t *testing.T) {
	open(t)
	for _, v := range environment {
		if _, set := os.LookupEnv(v[0]); set {
			t.Errorf("%s is in the environment that other programs will get", v[0])
		}
	}
}

// fewDescriptors checks that Open and NewWorker return an error where the library would end the process for want of
// descriptors.
func fewDescriptors(t *testing.T) {
	if !isChild() {
		inChild(t)
		return
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limited := func(f func() error) {
		t.Helper()
		used, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for spare := range 16 {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(used) + spare), Max: limit.Max}); err != nil {
				t.Fatal(err)
			}
			err = f()
			if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); e != nil {
				t.Fatal(e)
			}
			wantError(t, err, unix.EMFILE)
		}
	}
	limited(func() error { _, err := Open(Config{}); return err })
	c := open(t)
	limited(func() error { _, err := c.NewWorker(); return err })
}

// signalsStay checks that Go still handles signals after the library is loaded, and can recover from a fault.
func signalsStay(t *testing.T) {
	if !isChild() {
		inChild(t)
		return
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, unix.SIGHUP)
	open(t)
	if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	next(t, hangup, "SIGHUP")
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	debug.SetPanicOnFault(true)
	defer func() {
		if recover() == nil {
			t.Error("no fault")
		}
	}()
	b[0]++
}

// outputStays checks that the library logs to standard error.
func outputStays(t *testing.T) {
	if isChild() {
		open(t)
		return
	}
	out, errs := inChild(t, "UCX_LOG_LEVEL=info")
	if bytes.Contains([]byte(out), []byte("UCX")) || !bytes.Contains([]byte(errs), []byte("UCX")) {
		t.Errorf("standard output %q, standard error %q", out, errs)
	}
}

func memoryTypes(t *testing.T) {
	c := open(t)
	b := mapped(t, 1<<16)
	m, err := c.Map(at(b), len(b), CUDA)
	if err == nil { // a library with CUDA, or one that does not check
		tidy(t, m.Close())
		return
	}
	if e := (*Error)(nil); !errors.As(err, &e) || e.Call != "ucp_mem_map" {
		t.Error(err)
	}
}
