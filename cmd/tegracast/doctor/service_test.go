// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// TestDoctorService checks that the unit's settings are passed to systemd-run in order, without its folders and start
// commands.
func TestDoctorService(t *testing.T) {
	unit, err := os.ReadFile("../../../systemd/tegracast.service")
	if err != nil {
		t.Fatal(err)
	}
	dropIns := "# /lib/systemd/system/tegracast.service\n" + string(unit) +
		"\n# /run/systemd/system.control/tegracast.service.d/50-DeviceAllow.conf\n[Service]\nDeviceAllow=/dev/nvmap rw\n; no\nSupplementaryGroups = video \\\n render\n[Unit]\nUser=root\n"
	var lines [][]string
	var out strings.Builder
	fails := map[string]error{}
	m := manager{
		e: terminal.Env{Out: &out, Err: io.Discard}, here: func() bool { return true }, self: func() (string, error) { return "/usr/bin/tegracast", nil },
		run: func(_ context.Context, out, _ io.Writer, line ...string) error {
			lines = append(lines, line)
			if line[0] == "systemctl" {
				fmt.Fprint(out, dropIns)
			} else {
				fmt.Fprintln(out, "ready")
			}
			return fails[line[0]]
		},
	}
	if err := m.runDoctor(t.Context(), true); err != nil || out.String() != "ready\n" {
		t.Fatalf("%v, %q", err, out.String())
	}
	if want := "systemctl cat --no-pager tegracast.service"; strings.Join(lines[0], " ") != want {
		t.Errorf("%q, want %q", lines[0], want)
	}
	line := lines[1]
	if tail := line[len(line)-3:]; line[0] != "systemd-run" || !slices.Equal(tail, []string{"/usr/bin/tegracast", "doctor", "--json"}) {
		t.Errorf("%q", line)
	}
	for _, want := range []string{
		"User=tegracast", "DevicePolicy=closed", "DeviceAllow=char-tegra_p2p rw", "DeviceAllow=/dev/nvmap rw", "SupplementaryGroups=video   render", "CapabilityBoundingSet=",
		"SystemCallFilter=@system-service", "SystemCallFilter=~@privileged", "MemoryDenyWriteExecute=yes", "LimitMEMLOCK=infinity", "ProtectHome=yes", "PrivateTmp=yes",
		"RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
	} {
		if !slices.Contains(line, "--property="+want) {
			t.Errorf("%s is not among %q", want, line)
		}
	}
	for _, word := range []string{"Directory", "Exec", "Restart", "Watchdog", "Type=", "User=root", "RemoveIPC"} {
		if slices.ContainsFunc(line[6:], func(s string) bool { return strings.HasPrefix(s, "--property="+word) }) {
			t.Errorf("%s is among %q", word, line)
		}
	}
	fails["systemd-run"] = exec.CommandContext(t.Context(), "false").Run()
	if err := m.runDoctor(t.Context(), false); !errors.Is(err, terminal.ErrChecked) {
		t.Errorf("what doctor has found: %v", err)
	}
	for name, tt := range map[string]struct {
		change func()
		says   string
	}{
		"does not start": {func() { fails["systemd-run"] = exec.CommandContext(t.Context(), "sh", "-c", "exit 203").Run() }, "status 203"},
		"no program":     {func() { fails["systemd-run"] = exec.ErrNotFound }, "not found"},
	} {
		tt.change()
		if err := m.runDoctor(t.Context(), false); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fails["systemctl"] = errors.New("exit status 1")
	if err := m.runDoctor(t.Context(), false); err == nil || !strings.Contains(err.Error(), "no unit tegracast.service: install the package") {
		t.Errorf("no unit: %v", err)
	}
	m.here = func() bool { return false }
	if err := m.runDoctor(t.Context(), false); err == nil || !strings.Contains(err.Error(), "systemd does not run this machine") {
		t.Errorf("no systemd: %v", err)
	}
}

// TestChild checks that root's child of the installed program has the unit's settings and a time limit, and that others
// have neither.
func TestChild(t *testing.T) {
	unit := "[Service]\nUser=tegracast\nNoNewPrivileges=yes\n"
	confined := "systemd-run --pipe --wait --quiet --collect --service-type=exec " +
		"--property=User=tegracast --property=NoNewPrivileges=yes --property=RuntimeMaxSec=30s --property=KillSignal=SIGKILL " + installed
	for name, tt := range map[string]struct {
		self  string
		uid   int
		here  bool
		bus   bool
		fails string // the program that fails
		want  string
	}{
		"root":              {installed, 0, true, true, "", confined},
		"another user":      {installed, 1000, true, true, "", installed},
		"from a folder":     {"/root/bin/tegracast", 0, true, true, "", "/root/bin/tegracast"},
		"no systemd":        {installed, 0, false, true, "", installed},
		"no bus":            {installed, 0, true, false, "", installed},
		"no unit":           {installed, 0, true, true, "systemctl", installed},
		"a setting refused": {installed, 0, true, true, "systemd-run", installed},
	} {
		m := manager{here: func() bool { return tt.here }, bus: func() bool { return tt.bus }, self: func() (string, error) { return tt.self, nil }}
		m.run = func(_ context.Context, out, _ io.Writer, line ...string) error {
			fmt.Fprint(out, unit)
			if line[0] == tt.fails {
				return errors.New("exit status 1")
			}
			return nil
		}
		if line, err := m.child(t.Context(), tt.uid, attemptLimit); err != nil || strings.Join(line, " ") != tt.want {
			t.Errorf("%s: %q, %v, want %s", name, line, err, tt.want)
		}
	}
}

// TestDoctorShut checks the remedy for an unreadable device file: the group for a user, udev for the service.
func TestDoctorShut(t *testing.T) {
	for user, want := range map[string]finding{
		"berta":     {What: "device", Grade: isWarning, Command: "usermod -a -G tegracast \"$SUDO_USER\""},
		"tegracast": {What: "device", Grade: isMissing, Command: "udevadm trigger --action=add /dev/tegra_p2p0"},
	} {
		p := ofPatient(orin(), usesNVP2P|protected)
		p.user, p.open = user, func(string) error { return fs.ErrPermission }
		if got := p.devices(); got.Grade != want.Grade || got.Command != want.Command {
			t.Errorf("%s: %+v", user, got)
		}
		exists(t, want.Command)
	}
}

// FuzzSandbox checks that only settings of the list are returned, as KEY=VALUE in one line.
func FuzzSandbox(f *testing.F) {
	f.Add("[Service]\nUser=x\nDeviceAllow=a \\\n b\n[Unit]\nUser=y\n")
	f.Fuzz(func(t *testing.T, unit string) {
		for _, s := range sandbox(unit) {
			if strings.ContainsAny(s, "\n") || !strings.Contains(s, "=") || strings.HasPrefix(s, "Exec=") {
				t.Errorf("%q", s)
			}
		}
	})
}

// TestSocketBuffersOfThePackage checks that the file in the package has the sizes that doctor requires.
func TestSocketBuffersOfThePackage(t *testing.T) {
	text, err := os.ReadFile("../../../systemd/tegracast.sysctl")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"wmem_max", "rmem_max"} {
		if want := fmt.Sprintf("\nnet.core.%s = %d\n", name, socketBuffer); !strings.Contains(string(text), want) {
			t.Errorf("systemd/tegracast.sysctl has no %q", want)
		}
	}
}
