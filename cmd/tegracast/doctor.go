package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

const doctorUsage = `Usage: tegracast doctor [--service] [--json]
       tegracast doctor --report FILE.tar

Says what this machine is and what is missing for a camera of a real FPGA, in
the order of docs/bringup.md, and how to fix it: a command for root, or what to
look at. What depends on something that is missing is "not checked". Status 0
when nothing is missing, 1 otherwise. Warnings do not change the status: they
cost speed or safety.

--service looks through the eyes of tegracast.service: systemd-run starts doctor
with the unit's user, groups, device rules, limits and sandbox, drop-ins included.
What root may open, and the service may not, is found that way. For root.

--report writes all that whoever helps you may ask for into one archive: this
text, the files that it comes from, the kernel's and the service's log, what the
kernel module says, memory pinned for the FPGA, validation runs, and a minute of
streaming. It takes two to three minutes. Run it as root, with the service
stopped. Nothing private is in it: README.txt, its first file, says how. What
fails says why there, and the rest is written; a FILE that exists is refused.
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
	Command string `json:"command,omitempty"` // that fixes it, for a shell of root
}

// patient is the machine that is looked at: its files, and what files do not tell.
type patient struct {
	root         fs.FS
	user         string                               // who looks
	synchronised func() bool                          // the clock is
	open         func(path string) error              // opens a device of the kernel module
	info         func(path string) (uapi.Info, error) // asks the module what a device of its is
	kernelLog    func() string                        // what the kernel has said since boot; empty when it may not be read
}

func doctor(ctx context.Context, e env, args []string) error {
	f := e.flags("doctor", doctorUsage)
	asJSON := f.Bool("json", false, "print the findings as JSON")
	service := f.Bool("service", false, "run as tegracast.service is run, with its user, device rules and sandbox")
	file := f.String("report", "", "write a report for whoever helps you to `FILE`")
	if err := parse(f, args); err != nil {
		return err
	}
	if *asJSON && *file != "" {
		return usageError{errors.New("--json and --report: leave one out, the report has the findings as JSON, too")}
	}
	if *service && *file != "" {
		return usageError{errors.New("--report and --service: leave one out")}
	}
	if *service {
		return doctorService(ctx, newManager(e), *asJSON)
	}
	if *file != "" {
		return doctorReport(ctx, e, *file)
	}
	list := thisMachine(e).examine()
	ready := isReady(list)
	if err := tellFindings(e, list, ready, *asJSON); err != nil {
		return err
	}
	if !ready {
		return errChecked
	}
	return nil
}

// thisMachine is the one that the program runs on.
func thisMachine(e env) patient {
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return patient{user: name, root: os.DirFS("/"), synchronised: clockSynchronised, info: deviceInfo, kernelLog: kernelLog, open: func(path string) error {
		board, err := openBoard(env{out: e.out, err: e.err, log: slog.New(slog.DiscardHandler)}, path, "host")
		if err != nil {
			return err
		}
		return board.Close()
	}}
}

// isReady says whether nothing is missing.
func isReady(list []finding) bool {
	return !slices.ContainsFunc(list, func(x finding) bool { return x.Grade == isMissing })
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
			fmt.Fprintf(e.out, "%23s%s\n", "fix: ", x.Command)
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
