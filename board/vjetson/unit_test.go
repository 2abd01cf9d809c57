// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/u-root/mkuimage/cpio"
)

// entryOf reads an entry of a newc archive, according to the format's description, and returns what follows it.
func entryOf(t *testing.T, b []byte) (name, data string, mode uint64, rest []byte) {
	t.Helper()
	field := func(i int) uint64 {
		v, err := strconv.ParseUint(string(b[6+8*i:14+8*i]), 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if string(b[:6]) != "070701" {
		t.Fatalf("magic %q", b[:6])
	}
	up := func(n uint64) uint64 { return (n + 3) / 4 * 4 }
	size, names := field(6), field(11)
	start := up(110 + names)
	return string(b[110 : 110+names-1]), string(b[start : start+size]), field(1), b[up(start+size):]
}

func TestCPIO(t *testing.T) {
	var b bytes.Buffer
	c := newArchive(&b)
	c.add(cpio.StaticFile("/usr/bin/a", "hello", 0o755))
	c.add(cpio.Symlink("/usr/b", "bin/a"))
	c.add(cpio.CharDev("/dev/console", 0o600, 5, 1))
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	rest := b.Bytes()
	for _, want := range []struct {
		name, data string
		mode       uint64
	}{
		{"usr", "", 0o040755},
		{"usr/bin", "", 0o040755},
		{"usr/bin/a", "hello", 0o100755},
		{"usr/b", "bin/a", 0o120777},
		{"dev", "", 0o040755},
		{"dev/console", "", 0o020600},
		{"TRAILER!!!", "", 0},
	} {
		var name, data string
		var mode uint64
		name, data, mode, rest = entryOf(t, rest)
		if name != want.name || data != want.data || mode != want.mode {
			t.Errorf("%q %q %o, want %+v", name, data, mode, want)
		}
	}
	for what, size := range map[string]uint64{"instead of 6 bytes": 6, "too many": 1 << 32} {
		a := newArchive(io.Discard)
		a.add(cpio.Record{ReaderAt: strings.NewReader("short"), Info: cpio.Info{Name: "/a", Mode: cpio.S_IFREG | 0o644, FileSize: size}})
		if err := a.close(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("a file of 5 bytes that is said to have %d: %v", size, err)
		}
	}
}

func TestKernelLogIsBounded(t *testing.T) {
	const most = 1000
	l := newKernelLog(nil)
	l.most = most
	_, _ = l.Write(bytes.Repeat([]byte{'x'}, 10*maxLine))
	_, _ = l.Write([]byte("\n"))
	if got := l.all(); len(got) != 1 || len(got[0]) != maxLine {
		t.Errorf("%d lines of %d bytes", len(got), len(got[0]))
	}
	for range 3 * most {
		_, _ = l.Write([]byte("WARNING: again\n"))
	}
	if n, f := len(l.all()), len(l.found()); n > most || f > most {
		t.Errorf("%d lines and %d faults are kept", n, f)
	}
	if _, err := l.expect("("); err == nil {
		t.Error("a pattern that is none was taken")
	}
	e, _ := l.expect("never")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := e.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a line that does not come: %v", err)
	}
}

// TestTailAfterAPanic checks that an error shows the panic, however much the kernel logs after it.
func TestTailAfterAPanic(t *testing.T) {
	const most = 1000
	for _, after := range []int{0, 1, tailSize, most / 2} { // from the second on, half of the lines are dropped
		l := newKernelLog(nil)
		l.most = most
		_, _ = io.WriteString(l, strings.Repeat("before\n", most-1)+"Kernel panic - not syncing: because\n"+strings.Repeat("after\n", after))
		if tail := l.tail(); !strings.Contains(tail, "because") || strings.Count(tail, "\n") != tailSize {
			t.Errorf("%d lines later: %s", after, tail)
		}
	}
}

// FuzzKernelLog checks that lines do not depend on how the console's bytes are split.
func FuzzKernelLog(f *testing.F) {
	f.Add([]byte("one\r\ntwo\nWARNING: three\n"), uint8(3))
	f.Add([]byte("\n\n\r\n\xff"), uint8(1))
	f.Fuzz(func(t *testing.T, said []byte, step uint8) {
		whole, pieces := newKernelLog(nil), newKernelLog(io.Discard)
		_, _ = whole.Write(said)
		for rest := range slices.Chunk(said, int(step)+1) {
			_, _ = pieces.Write(rest)
		}
		if !slices.Equal(whole.all(), pieces.all()) || !slices.Equal(whole.found(), pieces.found()) || whole.tail() != pieces.tail() {
			t.Errorf("%q\n%q", whole.all(), pieces.all())
		}
	})
}

func TestParseReleases(t *testing.T) {
	records := `Package: linux-image-arm64
Version: 6.1.192-2
Depends: linux-image-6.1.0-56-arm64 (= 6.1.192-2)

Package: linux-image-arm64
Version: 5.10.223-1
Depends: linux-image-5.10.0-9-arm64 (= 5.10.223-1)

Package: linux-image-arm64
Version: 5.10.262-1
Depends: linux-image-5.10.0-46-arm64 (= 5.10.262-1)

Package: linux-image-6.12-arm64
Depends: linux-image-6.12.117+deb12-arm64 (= 6.12.117-1~deb12u1)

Package: linux-image-6.12-arm64
Depends: linux-image-6.12.117+deb12-arm64 (= 6.12.117-1~deb12u1)
`
	for series, want := range map[string][]release{
		"5.10": {{"5.10.0-46-arm64", "5.10.262-1"}, {"5.10.0-9-arm64", "5.10.223-1"}},
		"6.1":  {{"6.1.0-56-arm64", "6.1.192-2"}},
		"6.12": {{"6.12.117+deb12-arm64", "6.12.117-1~deb12u1"}},
		"6.2":  nil,
	} {
		if got, err := parseReleases(records, series); !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %v %v, want %v", series, got, err, want)
		}
	}
	for record, want := range map[string]string{
		"Depends: linux-headers-5.10.0-46-common (= 5.10.262-1), linux-kbuild-5.10 (>= 5.10.262-1), gcc-10":                    "linux-kbuild-5.10",
		"Depends: linux-base (>= 4.12~), linux-headers-6.12.95+deb12-common (= 6.12.95-1), linux-kbuild-6.12.95+deb12, gcc-12": "linux-kbuild-6.12.95+deb12",
	} {
		if got := kbuildPackage.FindString(record); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestBuiltInModules(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "lib/modules/1-arm64")
	if err := os.MkdirAll(filepath.Join(at, "kernel/drivers"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := (Kernel{Dir: dir, Release: "1-arm64"}).modules(); !errors.Is(err, ErrMissing) {
		t.Errorf("without a list: %v", err)
	}
	if err := os.WriteFile(filepath.Join(at, "modules.builtin"), []byte("kernel/drivers/virtio/virtio-pci.ko\nkernel/lib/a.ko\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := (Kernel{Dir: dir, Release: "1-arm64"}).modules()
	if err != nil {
		t.Fatal(err)
	}
	if order, err := m.order("virtio_pci", "a"); err != nil || len(order) != 0 {
		t.Errorf("%q %v", order, err)
	}
	if _, err := m.order("b"); err == nil {
		t.Error("a module that there is not was found")
	}
}

func TestAptSources(t *testing.T) {
	got := (apt{suites: []string{"bookworm", "bookworm-security", "trixie-backports"}}).sources()
	want := "deb [signed-by=" + keyring + "] http://deb.debian.org/debian bookworm main\n" +
		"deb [signed-by=" + keyring + "] http://deb.debian.org/debian-security bookworm-security main\n" +
		"deb [signed-by=" + keyring + "] http://deb.debian.org/debian trixie-backports main\n"
	if got != want {
		t.Errorf("%s", got)
	}
	if o := (apt{prefer: "trixie-backports"}).options(); !slices.Contains(o, "-oAPT::Default-Release=trixie-backports") {
		t.Errorf("%q", o)
	}
}

func TestCachedIsTheNewest(t *testing.T) {
	dir := t.TempDir()
	for _, r := range []string{
		"6.1.0-9-arm64", "6.1.0-56-arm64", "6.1.0-56-amd64", "5.10.0-99-arm64", "6.12.99+deb12-arm64", "6.12.117+deb12-arm64", "sanitized-00000000",
	} {
		if err := os.MkdirAll(filepath.Join(dir, r), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, r, completeMark), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "6.1.0-57-arm64"), 0o755); err != nil { // incomplete
		t.Fatal(err)
	}
	for series, want := range map[string]string{"5.10": "5.10.0-99-arm64", "6.1": "6.1.0-56-arm64", "6.12": "6.12.117+deb12-arm64"} {
		if k, ok := cached(dir, "arm64", series); !ok || k.Release != want || k.Dir != filepath.Join(dir, want) {
			t.Errorf("%s: %+v %v", series, k, ok)
		}
	}
	if _, ok := cached(dir, "amd64", "6.12"); ok {
		t.Error("found a kernel of another architecture")
	}
	if _, err := FetchSeries(t.Context(), "arm64", "4.9", slog.Default()); err == nil || !strings.Contains(err.Error(), "5.10, 6.1, 6.12") {
		t.Errorf("a series that there is not: %v", err)
	}
}

// monitorPair returns both ends of a monitor's connection: the harness's and QEMU's.
func monitorPair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	a, b, err := socketPair("monitor")
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = unixConn(a); err == nil {
		theirs, err = unixConn(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

func TestMonitor(t *testing.T) {
	a, b := monitorPair(t)
	q := newQMP(a)
	go fakeQEMU(b)
	if err := q.execute(t.Context(), "good", nil); err != nil {
		t.Error(err)
	}
	if err := q.execute(t.Context(), "bad", nil); err == nil || !strings.Contains(err.Error(), "it is bad") {
		t.Errorf("a command that fails: %v", err)
	}
	if err := q.unplug(t.Context(), "dev"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := q.execute(ctx, "slow", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command without answer: %v", err)
	}
	if err := q.execute(t.Context(), "end", nil); !errors.Is(err, ErrEnded) {
		t.Errorf("a monitor that ends: %v", err)
	}
	if err := q.execute(t.Context(), "good", nil); !errors.Is(err, ErrEnded) {
		t.Errorf("a monitor that has ended: %v", err)
	}
	a.Close()
	<-q.ended
}

// endingPort is a port whose other end is closed, which its reader notices later than its writer.
type endingPort struct {
	net.Conn
	written chan struct{}
}

func (p endingPort) Write([]byte) (int, error) {
	close(p.written)
	return 0, &net.OpError{Op: "write", Err: syscall.EPIPE}
}

func (p endingPort) Read([]byte) (int, error) {
	<-p.written
	time.Sleep(10 * time.Millisecond)
	return 0, io.EOF
}

func TestCommandToAnEndingMachine(t *testing.T) {
	m := &Machine{jobs: newJobs(endingPort{written: make(chan struct{})}), log: newKernelLog(nil), said: &tailBuffer{}, ended: make(chan struct{})}
	close(m.ended)
	go m.jobs.serve()
	if _, err := m.Run(t.Context(), "true"); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	<-m.jobs.gone
}

// TestStuckBoot: a kernel that prints nothing more, or that reports a blocked task, is stuck; one that is slow is not.
func TestStuckBoot(t *testing.T) {
	for said, want := range map[string]string{
		"[  144.0] INFO: task swapper/0:1 blocked for more than 120 seconds.\n": "blocked for more",
		"[   84.0] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:\n":       "detected stalls",
		"[    1.0] integrity: Loading X.509 certificate\n":                      "no line from the kernel for 3m20s",
		"": "no line from the kernel for 3m20s",
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &Machine{cfg: Config{BootTimeout: defaultBootTimeout}, jobs: newJobs(endingPort{}), log: newKernelLog(nil), said: &tailBuffer{}}
			var last time.Time
			go func() {
				for range 10 { // a busy host: a line every minute
					_, _ = m.log.Write([]byte("[    0.5] pci 0000:00:01.0\n"))
					time.Sleep(time.Minute)
				}
				last = time.Now()
				_, _ = m.log.Write([]byte(said))
			}()
			if err := m.agentUp(t.Context()); !errors.Is(err, errStuck) || !errors.Is(err, ErrBoot) || !strings.Contains(err.Error(), want) {
				t.Errorf("after %q: %v", said, err)
			}
			if took := time.Since(last); last.IsZero() || took > 4*time.Minute {
				t.Errorf("after %q the boot was given up in %v", said, took)
			}
		})
	}
}

// fakeQEMU answers by the command's name.
func fakeQEMU(c net.Conn) {
	defer c.Close()
	_, _ = io.WriteString(c, `{"QMP": {"version": {}, "capabilities": []}}`)
	for dec := json.NewDecoder(c); ; {
		var m struct{ Execute string }
		if dec.Decode(&m) != nil {
			return
		}
		answer := map[string]string{
			"good": `{"return": {}}`, "bad": `{"error": {"class": "GenericError", "desc": "it is bad"}}`,
			"device_del": `{"return": {}}{"event": "DEVICE_DELETED", "data": {"device": "dev"}}`,
		}[m.Execute]
		if m.Execute == "end" {
			return
		}
		_, _ = io.WriteString(c, answer)
	}
}
