// SPDX-License-Identifier: Apache-2.0

// Package doctor says what a machine is, what is missing for a camera of a real FPGA, and how to fix it. It also writes the
// report for whoever helps.
package doctor

import (
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cudahost"
)

// Look examines the machine and tells what it finds, as text or as JSON. It returns command.ErrChecked when something is missing.
func Look(e command.Env, asJSON bool) error {
	list := thisMachine().examine()
	ready := isReady(list)
	if err := tellFindings(e, list, ready, asJSON); err != nil {
		return err
	}
	if !ready {
		return command.ErrChecked
	}
	return nil
}

// thisMachine is the one that the program runs on.
func thisMachine() patient {
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return patient{user: name, root: os.DirFS("/"), synchronised: clockSynchronised, info: deviceInfo, kernelLog: kernelLog, open: func(path string) error {
		board, err := device.OpenBoard(cudahost.Config{Backend: "host", Logger: slog.New(slog.DiscardHandler)}, path)
		if err != nil {
			return err
		}
		return board.Close()
	}}
}

// examine looks at everything, in the order in which whoever brings a board up meets it (docs/bringup.md). What cannot be looked at
// before something else is right is "not checked".
func (p patient) examine() []finding {
	list := []finding{p.board(), p.kernel(), p.headers(), p.dkms(), p.signing(), p.module()}
	list = append(list, p.functions()...)
	list = append(list, p.devices())
	list = append(list, p.pinning()...)
	list = append(append(list, p.gpu()), p.libraries()...)
	list = append(list, p.h264(), p.turboJPEG(), p.memlock(), p.buffers(), p.gpio(), p.clock())
	return append(list, p.power()...)
}

// isReady says whether nothing is missing.
func isReady(list []finding) bool {
	return !slices.ContainsFunc(list, func(x finding) bool { return x.Grade == isMissing })
}

// Findings are what doctor prints as JSON (docs/json.md).
type Findings struct {
	Ready    bool      `json:"ready"`
	Findings []finding `json:"findings"`
}

func tellFindings(e command.Env, list []finding, ready, asJSON bool) error {
	if asJSON {
		return command.WriteJSON(e.Out, Findings{ready, list})
	}
	for _, x := range list {
		fmt.Fprintf(e.Out, "%-8s %-13s %s\n", x.Grade, x.What, x.Detail)
		if x.Command != "" {
			fmt.Fprintf(e.Out, "%23s%s\n", remedy(os.Geteuid()), x.Command)
		}
	}
	verdict := "ready for a camera of a real FPGA"
	if !ready {
		verdict = "NOT ready for a camera of a real FPGA; the model works everywhere: tegracast serve"
	}
	fmt.Fprintln(e.Out, verdict)
	return nil
}

// remedy is what stands before a command that fixes something: whoever cannot run it reads who can.
func remedy(uid int) string {
	if uid == 0 {
		return "fix: "
	}
	return "fix, as root: "
}

// clockSynchronised asks the kernel (adjtimex(2)).
func clockSynchronised() bool {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
}

// kernelLog reads the kernel's ring of messages (syslog(2)); where dmesg_restrict forbids that it is empty.
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
