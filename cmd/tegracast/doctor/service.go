// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

const serviceUnit = "tegracast.service"

// A manager runs the service manager's programs.
type manager struct {
	e    terminal.Env
	here func() bool                                                          // reports whether systemd runs this machine (sd_booted(3))
	bus  func() bool                                                          // reports whether there is a system bus, which systemd-run needs
	run  func(ctx context.Context, out, errw io.Writer, line ...string) error // runs a program
	self func() (string, error)                                               // returns the path of this program
}

func newManager(e terminal.Env) manager {
	return manager{
		e: e, self: os.Executable,
		here: func() bool { _, err := os.Stat("/run/systemd/system"); return err == nil },
		bus:  func() bool { _, err := os.Stat("/run/dbus/system_bus_socket"); return err == nil },
		run: func(ctx context.Context, out, errw io.Writer, line ...string) error {
			c := exec.CommandContext(ctx, line[0], line[1:]...)
			c.Stdout, c.Stderr = out, errw
			return c.Run()
		},
	}
}

// Service runs doctor in the environment of the installed service.
func Service(ctx context.Context, e terminal.Env, asJSON bool) error {
	return newManager(e).runDoctor(ctx, asJSON)
}

// runDoctor runs doctor in the environment of the service.
func (m manager) runDoctor(ctx context.Context, asJSON bool) error {
	if !m.here() {
		return errors.New("--service: systemd does not run this machine: leave --service out")
	}
	self, err := m.self()
	if err != nil {
		return err
	}
	line, err := m.confined(ctx, self)
	if err != nil {
		return fmt.Errorf("--service: %w", err)
	}
	line = append(line, "doctor")
	if asJSON {
		line = append(line, "--json")
	}
	err = m.run(ctx, m.e.Out, m.e.Err, line...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return terminal.ErrChecked // doctor or systemd-run has printed the reason
	case errors.As(err, &exit):
		return fmt.Errorf("--service: doctor does not start with the settings of %s (status %d): run it as root, and from /usr/bin, since the unit cannot see home folders", serviceUnit, exit.ExitCode())
	case err != nil:
		return fmt.Errorf("--service: %w", err)
	}
	return nil
}

// confined returns the start of a command that runs a program by systemd-run(1) with those settings of the unit that
// restrict the service, and with other settings.
func (m manager) confined(ctx context.Context, program string, others ...string) ([]string, error) {
	var text, trouble strings.Builder
	if err := m.run(ctx, &text, &trouble, "systemctl", "cat", "--no-pager", serviceUnit); err != nil {
		return nil, fmt.Errorf("systemd has no unit %s: install the package tegracast: %w: %s", serviceUnit, err, strings.TrimSpace(trouble.String()))
	}
	line := []string{"systemd-run", "--pipe", "--wait", "--quiet", "--collect", "--service-type=exec"}
	for _, setting := range slices.Concat(sandbox(text.String()), others) {
		line = append(line, "--property="+setting)
	}
	return append(line, program), nil
}

// installed is the program of the package, which runs in the unit's sandbox.
const installed = "/usr/bin/tegracast"

// child returns the start of a command that runs this program for at most limit. If root runs the installed program, the
// child has the environment of the service, unless systemd-run refuses a setting of it, as an old one may.
func (m manager) child(ctx context.Context, uid int, limit time.Duration) ([]string, error) {
	self, err := m.self()
	if err == nil && self == installed && uid == 0 && m.here() && m.bus() {
		line, err := m.confined(ctx, self, fmt.Sprintf("RuntimeMaxSec=%ds", int(limit.Seconds())), "KillSignal=SIGKILL")
		if err == nil && m.run(ctx, io.Discard, io.Discard, append(line[:len(line)-1:len(line)-1], "/usr/bin/true")...) == nil {
			return line, nil
		}
	}
	return []string{self}, err
}

// sandboxKeys are the settings, or their prefixes, that restrict a service (systemd.exec(5),
// systemd.resource-control(5)). RuntimeDirectory and the like are omitted: at the end of doctor's unit, systemd would
// remove a folder that the running service uses.
var sandboxKeys = []string{
	"User", "Group", "SupplementaryGroups", "DevicePolicy", "DeviceAllow", "CapabilityBoundingSet", "AmbientCapabilities", "NoNewPrivileges",
	"SecureBits", "SystemCall*", "MemoryDenyWriteExecute", "LockPersonality", "Restrict*", "Protect*", "Private*", "ProcSubset", "Limit*", "UMask",
	"KeyringMode", "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths", "BindPaths", "BindReadOnlyPaths",
	"TemporaryFileSystem", "Environment", "EnvironmentFile", "IPAddressAllow", "IPAddressDeny",
}

// sandbox returns those settings of a unit and its drop-ins that are in sandboxKeys, in the order of the text, as
// KEY=VALUE (systemd.syntax(7)).
func sandbox(unit string) (settings []string) {
	section := ""
	joined := strings.ReplaceAll(unit, "\\\n", " ")
	for line := range strings.Lines(joined) {
		line = strings.TrimSpace(line)
		key, value, found := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case strings.HasPrefix(line, "#"), strings.HasPrefix(line, ";"):
		case strings.HasPrefix(line, "["):
			section = line
		case found && section == "[Service]" && slices.ContainsFunc(sandboxKeys, func(k string) bool {
			begin, any := strings.CutSuffix(k, "*")
			return key == k || any && strings.HasPrefix(key, begin)
		}):
			settings = append(settings, key+"="+value)
		}
	}
	return settings
}
