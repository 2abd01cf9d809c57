package main

import (
	"context"
	"errors"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/cmd/tegracast/doctor"
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

func doctorCommand(ctx context.Context, e env, args []string) error {
	f := e.flags("doctor", doctorUsage)
	asJSON := f.Bool("json", false, "print the findings as JSON")
	service := f.Bool("service", false, "run as tegracast.service is run, with its user, device rules and sandbox")
	file := f.String("report", "", "write a report for whoever helps you to `FILE`")
	if err := parse(f, args); err != nil {
		return err
	}
	switch {
	case *asJSON && *file != "":
		return command.UsageError{Err: errors.New("--json and --report: leave one out, the report has the findings as JSON, too")}
	case *service && *file != "":
		return command.UsageError{Err: errors.New("--report and --service: leave one out")}
	case *service:
		return doctor.Service(ctx, e.Env, *asJSON)
	case *file != "":
		return doctor.Report(ctx, e.Env, *file, printVersion)
	}
	return doctor.Look(e.Env, *asJSON)
}
