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

	"github.com/tegracast/tegracast/cmd/tegracast/command"
)

const serviceUnit = "tegracast.service"

// A manager is the service manager's programs.
type manager struct {
	e    command.Env
	here func() bool                                                          // systemd runs this machine (sd_booted(3))
	run  func(ctx context.Context, out, errw io.Writer, line ...string) error // runs a program
	self func() (string, error)                                               // the path of this one
}

func newManager(e command.Env) manager {
	return manager{
		e: e, self: os.Executable,
		here: func() bool { _, err := os.Stat("/run/systemd/system"); return err == nil },
		run: func(ctx context.Context, out, errw io.Writer, line ...string) error {
			c := exec.CommandContext(ctx, line[0], line[1:]...)
			c.Stdout, c.Stderr = out, errw
			return c.Run()
		},
	}
}

// Service runs doctor as the installed service is run.
func Service(ctx context.Context, e command.Env, asJSON bool) error {
	return newManager(e).look(ctx, asJSON)
}

// look runs doctor as the unit is run: systemd-run(1) starts it with those of the unit's settings that say what it may do.
func (m manager) look(ctx context.Context, asJSON bool) error {
	if !m.here() {
		return errors.New("--service: systemd does not run this machine: leave --service out")
	}
	var text, trouble strings.Builder
	if err := m.run(ctx, &text, &trouble, "systemctl", "cat", "--no-pager", serviceUnit); err != nil {
		return fmt.Errorf("--service: systemd has no unit %s: install the package tegracast: %w: %s", serviceUnit, err, strings.TrimSpace(trouble.String()))
	}
	self, err := m.self()
	if err != nil {
		return err
	}
	line := []string{"systemd-run", "--pipe", "--wait", "--quiet", "--collect", "--service-type=exec"}
	for _, setting := range sandbox(text.String()) {
		line = append(line, "--property="+setting)
	}
	line = append(line, self, "doctor")
	if asJSON {
		line = append(line, "--json")
	}
	err = m.run(ctx, m.e.Out, m.e.Err, line...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return command.ErrChecked // doctor has said why, or systemd-run has
	case errors.As(err, &exit):
		return fmt.Errorf("--service: doctor does not start with the settings of %s (status %d): run it as root, and from /usr/bin, since the unit cannot see home folders", serviceUnit, exit.ExitCode())
	case err != nil:
		return fmt.Errorf("--service: %w", err)
	}
	return nil
}

// sandboxKeys are the settings that say what a service may do (systemd.exec(5), systemd.resource-control(5)), or how they begin.
// Its folders are left out: who makes them takes them away again, and the service's own are in use.
var sandboxKeys = []string{
	"User", "Group", "SupplementaryGroups", "DevicePolicy", "DeviceAllow", "CapabilityBoundingSet", "AmbientCapabilities", "NoNewPrivileges",
	"SecureBits", "SystemCall*", "MemoryDenyWriteExecute", "LockPersonality", "Restrict*", "Protect*", "Private*", "ProcSubset", "Limit*", "UMask",
	"KeyringMode", "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths", "BindPaths", "BindReadOnlyPaths",
	"TemporaryFileSystem", "Environment", "EnvironmentFile", "IPAddressAllow", "IPAddressDeny",
}

// sandbox takes those settings out of a unit with its drop-ins, in their order, as KEY=VALUE (systemd.syntax(7)).
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
