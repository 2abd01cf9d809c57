// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/tegracast/tegracast/cmd/tegracast/doctor"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/distribution"
)

var doctorUsage = `Usage: tegracast doctor [--service] [--json]
       tegracast doctor --report FILE.tar

Describes this machine, lists what it lacks to stream from a camera of a real
FPGA, in the order of docs/bringup.md, and says how to fix each item: a command
for root, or what to look at. An item that depends on a missing one is "not
checked". Status 0 when nothing is missing, 1 otherwise. Warnings cost speed or
safety; they do not change the status.

--service runs doctor as tegracast.service runs: systemd-run starts it with the
unit's user, groups, device rules, limits and sandbox, including drop-ins. This
finds what root may open and the service may not. It needs root.

CUDA and UCX are used in a child process, for at most 30 seconds each. If root
runs the installed program, that child runs as tegracast.service does.

--report writes one archive with everything that support may ask for: this text,
the files behind it, the logs of the kernel and of the service, the state of the
kernel module, memory pinned for the FPGA, validation runs, and one minute of
streaming. It takes two to three minutes. Run it as root, with the service
stopped. Names, addresses and passwords are removed as far as they are
recognised; the first file, README.txt, lists which. Read it all first. A part
that fails is replaced by the reason, and the rest is written. FILE must not
exist yet.

Packages of the libraries that the program opens at run time, by distribution:

` + distribution.Table()

func doctorCommand(ctx context.Context, e env, args []string) error {
	if len(args) == 2 && args[0] == doctor.AttemptArgument {
		return doctor.Attempt(e.Env, args[1])
	}
	f := e.flags("doctor", doctorUsage)
	asJSON := f.Bool("json", false, "print the findings as JSON")
	service := f.Bool("service", false, "run with the user, device rules and sandbox of tegracast.service")
	file := f.String("report", "", "write a report for support to `FILE`")
	if err := parse(f, args); err != nil {
		return err
	}
	switch {
	case *asJSON && *file != "":
		return terminal.UsageError{Err: errors.New("--json and --report exclude each other: the report contains the findings as JSON")}
	case *service && *file != "":
		return terminal.UsageError{Err: errors.New("--report and --service exclude each other: use one of them")}
	case *service:
		return doctor.Service(ctx, e.Env, *asJSON)
	case *file != "":
		return doctor.Report(ctx, e.Env, *file, printVersion)
	}
	return doctor.Diagnose(ctx, e.Env, *asJSON)
}
