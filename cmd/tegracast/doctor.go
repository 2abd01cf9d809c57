package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"tegracast/tegra/uapi"
)

const doctorUsage = `Usage: tegracast doctor [--json]

Says what this machine is, and what is missing for a camera of a real FPGA, each
with the command that mends it. Status 0 when nothing is missing, 1 otherwise.
A warning costs speed or safety, and is no reason for status 1.
`

// grade is how bad a finding is.
type grade string

const (
	isGood    grade = "good"
	isNote    grade = "note"    // what there is, without judgement
	isWarning grade = "warning" // it works, not as well as it could
	isMissing grade = "missing" // it does not work without
)

// finding is one thing that was looked at.
type finding struct {
	What    string `json:"what"`
	Grade   grade  `json:"grade"`
	Detail  string `json:"detail"`
	Command string `json:"command,omitempty"` // that mends it, for a shell of root
}

// patient is the machine that is looked at: its files, and what files do not tell.
type patient struct {
	root         fs.FS
	synchronised func() bool                          // the clock is
	open         func(path string) error              // opens a device of the kernel module
	info         func(path string) (uapi.Info, error) // asks the module what a device of its is
}

func doctor(_ context.Context, e env, args []string) error {
	f := e.flags("doctor", doctorUsage)
	asJSON := f.Bool("json", false, "print the findings as JSON")
	if err := parse(f, args); err != nil {
		return err
	}
	p := patient{root: os.DirFS("/"), synchronised: clockSynchronised, info: deviceInfo, open: func(path string) error {
		board, err := openBoard(env{out: e.out, err: e.err, log: slog.New(slog.DiscardHandler)}, path, "host")
		if err != nil {
			return err
		}
		return board.Close()
	}}
	list := p.examine()
	ready := true
	for _, x := range list {
		ready = ready && x.Grade != isMissing
	}
	if err := tellFindings(e, list, ready, *asJSON); err != nil {
		return err
	}
	if !ready {
		return errChecked
	}
	return nil
}

func tellFindings(e env, list []finding, ready, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(e.out)
		out.SetIndent("", "  ")
		out.SetEscapeHTML(false)
		return out.Encode(struct {
			Ready    bool      `json:"ready"`
			Findings []finding `json:"findings"`
		}{ready, list})
	}
	for _, x := range list {
		fmt.Fprintf(e.out, "%-8s %-13s %s\n", x.Grade, x.What, x.Detail)
		if x.Command != "" {
			fmt.Fprintf(e.out, "%23s%s\n", "mend it: ", x.Command)
		}
	}
	verdict := "ready for a camera of a real FPGA"
	if !ready {
		verdict = "NOT ready for a camera of a real FPGA; the model works everywhere: tegracast serve"
	}
	fmt.Fprintln(e.out, verdict)
	return nil
}

// clockSynchronised asks the kernel (adjtimex(2)).
func clockSynchronised() bool {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
}
