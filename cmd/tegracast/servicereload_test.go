// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// managed is a service under this test's service manager.
type managed struct {
	*programtest.Process
	conn *net.UnixConn
	file string // its configuration
}

// heard returns the notifications of a reload: its begin, and its outcome.
func (m *managed) heard(t *testing.T) (began int64, outcome string) {
	t.Helper()
	buf := make([]byte, 4096)
	if err := m.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for outcome == "" {
		n, err := m.conn.Read(buf)
		if err != nil {
			t.Fatalf("%v\n%s", err, m.Err.String())
		}
		said := string(buf[:n])
		if _, err := fmt.Sscanf(said, "RELOADING=1\nMONOTONIC_USEC=%d", &began); err != nil {
			outcome, _ = strings.CutPrefix(said, "READY=1\nSTATUS=")
			if outcome == said { // of the watchdog, or another status
				outcome = ""
			}
		}
	}
	return began, outcome
}

// reload runs the command of systemctl reload with a configuration. It returns its output and the outcome that the
// service manager gets.
func (m *managed) reload(t *testing.T, text string) (status int, says, outcome string) {
	t.Helper()
	if err := os.WriteFile(m.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	var errw bytes.Buffer
	status = run(t.Context(), []string{"reload"}, &errw, &errw)
	began, outcome := m.heard(t)
	if began < now.Nano()/1000 {
		t.Errorf("the reload began at %d µs, and was asked for at %d", began, now.Nano()/1000)
	}
	return status, errw.String(), outcome
}

// TestReloadTellsTheTruth checks that systemctl reload and the service's status report a mistake in a configuration, or
// why a valid one cannot be opened, and that the service goes on as before. The status also reports this after a SIGHUP
// from elsewhere.
func TestReloadTellsTheTruth(t *testing.T) {
	dir, conn, p := t.TempDir(), serviceManager(t, "40000000"), rtptest.EvenPorts(t, 2)
	t.Setenv("RUNTIME_DIRECTORY", dir)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	text := func(page any, rate int) string {
		return fmt.Sprintf(`
web: {listen: "127.0.0.1:%v"}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 64, height: 16, rate: 20}}]
isp: [{name: isp, workers: 1}]
outputs: [{name: raw, rate: %d, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}]
`, page, rate, p[0])
	}
	file := programtest.Write(t, "config.yaml", text(p[1], 10))
	m := &managed{programtest.StartProgram(t, "serve", "--config", file), conn, file}
	t.Setenv("MAINPID", strconv.Itoa(m.Process.Process.Pid))
	if _, outcome := m.heard(t); outcome != "streaming" {
		t.Fatalf("it begins with %q", outcome)
	}
	const failed = "streaming; the last reload has failed at "
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	for _, x := range []struct {
		name, text string
		status     int
		mistake    string // empty: success
	}{
		{"a mistake", text(p[1], 10) + "wbe: {}\n", exitFailure, file + `:7:1: unknown key "wbe"`},
		{"a change", text(p[1], 5), exitOK, ""},
		{"a port in use", text(port, 5), exitFailure, "127.0.0.1:" + port + ": bind: address already in use"},
		{"the file as it was", text(p[1], 10), exitOK, ""},
	} {
		status, says, outcome := m.reload(t, x.text)
		if status != x.status || !strings.Contains(says, x.mistake) || (says == "") != (x.mistake == "") {
			t.Errorf("%s: status %d, %q, want %d, %q", x.name, status, says, x.status, x.mistake)
		}
		if good := outcome == "streaming"; good != (x.mistake == "") || !good && (!strings.HasPrefix(outcome, failed) || !strings.Contains(outcome, x.mistake)) {
			t.Errorf("%s: the service manager is told %q", x.name, outcome)
		}
		if c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", p[1])); err != nil {
			t.Errorf("%s: the page from before is gone: %v", x.name, err)
		} else {
			c.Close()
		}
	}
	if err := os.WriteFile(file, []byte("wbe: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Process.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if began, outcome := m.heard(t); began == 0 || !strings.HasPrefix(outcome, failed) || !strings.Contains(outcome, `:1:1: unknown key "wbe"`) {
		t.Errorf("SIGHUP: the service manager is told %q", outcome)
	}
	m.Stop(t)
	var errw bytes.Buffer
	if status := run(t.Context(), []string{"reload"}, &errw, &errw); status != exitFailure || !strings.Contains(errw.String(), "no such process") {
		t.Errorf("without the service: status %d, %s", status, &errw)
	}
}

// reloadsTell reloads the installed service by systemd: with a change, a mistake, an address at which the service may not
// listen, and the original file. systemctl fails exactly if the reload does, and the unit's status and the journal give
// the reason, also if the journal reads it when the short process that wrote it has ended. The service's process stays the
// same.
func reloadsTell(t *testing.T, shell func(context.Context, string) (string, error)) {
	t.Helper()
	const (
		file   = "/etc/tegracast/tegracast.yaml"
		reload = "systemctl reload tegracast 2>/dev/null; echo $?; "
		state  = "systemctl show -P ActiveState tegracast; systemctl show -P StatusText tegracast | grep -c 'the last reload has failed at .*%[1]s'; " +
			"systemctl status --no-pager tegracast | grep -c 'ExecReload=.*status=1/FAILURE'; " +
			"journalctl --sync; journalctl -q -b -u tegracast -p err -o cat | grep -c 'tegracast reload failed error=.*%[1]s'"
		pause, resume   = "kill -STOP $(systemctl show -P MainPID systemd-journald); ", "kill -CONT $(systemctl show -P MainPID systemd-journald); "
		mistake, denied = "tegracast.yaml:[0-9]*:1: unknown key", "127.0.0.1:1: bind: permission denied"
	)
	for _, step := range []struct{ does, want string }{
		{"cp " + file + " /root/kept; systemctl show -P MainPID tegracast > /root/pid; echo 'web: {listen: none}' >> " + file, ""},
		{reload + fmt.Sprintf(state, ""), "0\nactive\n0\n0\n0\n"},
		{"journalctl -q -b -u tegracast -o cat | grep -c 'configuration reloaded changed=.web.listen.'", "1\n"},
		{"echo 'wbe: {}' >> " + file + "; " + pause + reload + resume + fmt.Sprintf(state, mistake), "1\nactive\n1\n1\n1\n"},
		{"sed -i 's/^wbe.*//; s/listen: none/listen: \"127.0.0.1:1\"/' " + file + "; " + reload + fmt.Sprintf(state, denied), "1\nactive\n1\n1\n1\n"},
		{"cp /root/kept " + file + "; " + reload + fmt.Sprintf(state, "tegracast.yaml:[0-9]"), "0\nactive\n0\n0\n1\n"},
		{"systemctl show -P MainPID tegracast | cmp - /root/pid", ""},
	} {
		if out, err := shell(t.Context(), step.does); out != step.want {
			log, _ := shell(t.Context(), "systemctl status --no-pager -n 40 tegracast")
			t.Fatalf("%s: %q %v, want %q\n%s", step.does, out, err, step.want, log)
		}
	}
}
