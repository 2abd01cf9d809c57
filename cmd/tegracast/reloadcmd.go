// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/tegracast/tegracast/cmd/tegracast/appliance"
	"github.com/tegracast/tegracast/cmd/tegracast/folders"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

const reloadUsage = `Usage: tegracast reload

Has the service read its configuration again, and waits for what comes of it.
It is for systemd, which runs it for systemctl reload tegracast: the service is
process $MAINPID, and its answer is in $RUNTIME_DIRECTORY.

Status 1 when the reload has failed: then the service goes on as before, and the
mistake is in the log and in systemctl status tegracast.
`

func reloadCommand(ctx context.Context, e env, args []string) error {
	f := e.flags("reload", reloadUsage)
	if err := parse(f, args); err != nil {
		return err
	}
	pid, err := strconv.Atoi(os.Getenv("MAINPID"))
	dir := folders.Runtime()
	if err != nil || pid < 2 || dir == "" {
		return terminal.UsageError{Err: errors.New("only systemd runs it, with MAINPID and RUNTIME_DIRECTORY: systemctl reload tegracast")}
	}
	return appliance.RequestReload(ctx, pid, dir)
}
