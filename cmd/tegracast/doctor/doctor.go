// SPDX-License-Identifier: Apache-2.0

// Package doctor identifies a machine, and reports what is missing for a camera of a real FPGA and how to fix it. It also
// writes the report for support.
package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// Diagnose examines the machine and prints the findings, as text or as JSON. It returns terminal.ErrChecked if
// something is missing.
func Diagnose(ctx context.Context, e terminal.Env, asJSON bool) error {
	list := thisMachine(ctx).examine()
	ready := isReady(list)
	if err := tellFindings(e, list, ready, asJSON); err != nil {
		return err
	}
	if !ready {
		return terminal.ErrChecked
	}
	return nil
}

// thisMachine returns the machine on which the program runs. Attempts to use a library end with ctx.
func thisMachine(ctx context.Context) patient {
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return patient{
		user: name, root: os.DirFS("/"), synchronised: clockSynchronised, info: deviceInfo, kernelLog: kernelLog, dumpVersions: dumpVersions,
		open: func(path string) error {
			board, err := device.OpenBoard(cudahost.Config{Backend: "host", Logger: slog.New(slog.DiscardHandler)}, path)
			if err != nil {
				return err
			}
			return board.Close()
		},
		config: func() (*config.Appliance, error) { return config.Load(serviceConfig) },
		videos: videodev.Host{}.Cameras, adapterTime: readAdapter,
		attempt: func(library string) (string, error) {
			program, err := newManager(terminal.Env{}).child(ctx, os.Geteuid(), attemptLimit)
			if err != nil {
				return "", err
			}
			return attempt(ctx, program, library, attemptLimit)
		},
	}
}

// examine makes all checks, in the order of bringing up a board (docs/bringup.md). A check that depends on a failed one
// is reported as a note, "not checked".
func (p patient) examine() []finding {
	symbols := p.symbols()
	list := []finding{p.board(), p.kernel(), p.headers(), p.dkms(), symbols, p.signing(), p.module(symbols)}
	list = append(list, p.functions()...)
	list = append(list, p.devices())
	list = append(list, p.pinning()...)
	list = append(append(list, p.gpu()), p.libraries()...)
	list = append(list, p.h264(), p.encoder(), p.turboJPEG(), p.ucx())
	list = append(append(append(list, p.cameras()...), p.recordings()...), p.memlock(), p.buffers())
	list = append(append(list, p.sending()...), p.gpio())
	return append(append(list, p.clock()...), p.power()...)
}

// isReady reports whether nothing is missing.
func isReady(list []finding) bool {
	return !slices.ContainsFunc(list, func(x finding) bool { return x.Grade == isMissing })
}

// Findings is the JSON that doctor prints (docs/json.md).
type Findings struct {
	Ready    bool      `json:"ready"`    // nothing is missing for a real FPGA
	Findings []finding `json:"findings"` // in the order of bring-up
}

func tellFindings(e terminal.Env, list []finding, ready, asJSON bool) error {
	if asJSON {
		return terminal.WriteJSON(e.Out, Findings{ready, list})
	}
	for _, x := range list {
		fmt.Fprintf(e.Out, "%-8s %-13s %s\n", x.Grade, x.What, printable.Lines(x.Detail))
		if x.Command != "" {
			fmt.Fprintf(e.Out, "%23s%s\n", remedy(os.Geteuid()), printable.Lines(x.Command))
		}
	}
	verdict := "ready for a camera of a real FPGA"
	if !ready {
		verdict = "NOT ready for a camera of a real FPGA; the model works everywhere: tegracast serve"
	}
	fmt.Fprintln(e.Out, verdict)
	return nil
}

// remedy returns the words before a command that fixes something. For users other than root they say that root must run
// it.
func remedy(uid int) string {
	if uid == 0 {
		return "fix: "
	}
	return "fix, as root: "
}

// clockSynchronised reports whether the kernel considers the clock synchronised (adjtimex(2)).
func clockSynchronised() bool {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
}

// kernelLog returns the kernel's log (syslog(2)), or "" if it cannot be read, for instance because of dmesg_restrict.
func kernelLog() string {
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
	if err != nil || n <= 0 {
		return ""
	}
	b := make([]byte, n)
	if n, err = unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, b); err != nil {
		return ""
	}
	return string(b[:n])
}
