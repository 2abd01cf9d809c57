// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/record"
)

// recordWords are the subcommands of record.
var recordWords = []word{
	{name: "ls", about: "list recordings: times, frames, sizes, and which are not finished", run: recordLs},
	{name: "info", about: "print what is in recordings: frames, times, pictures, losses", run: recordInfo},
	{name: "verify", about: "print the same, and check every byte against its checksum", run: recordVerify},
	{name: "export", about: "write the frames of recordings in another format", run: recordExport},
	{name: "repair", about: "end recordings that were not ended", run: recordRepair},
}

const wholePart = `A recording is an MCAP or MP4 file of an output with record. One without an end,
since it is still being written or the power was cut, is read as far as it is
whole. Status 0 when all is as it was written, 1 when a file is damaged or
cannot be read.
`

const infoUsage = `Usage: tegracast record info [--json] FILE...

Prints what is in recordings: frames, times, size of the pictures, losses.

` + wholePart

const verifyUsage = `Usage: tegracast record verify [--json] FILE...

Prints what is in recordings, as record info does, and checks every byte against
its checksum. MP4 has none: its pictures must have their bytes, in whole units.
A terminal shows the progress.

` + wholePart

const repairUsage = `Usage: tegracast record repair FILE...

Ends recordings that were not ended, because of a power cut or a crash: writes
the index behind the last whole frame, and cuts off what is torn. serve does so
when it starts. Status 1 when a file cannot be repaired.
`

func recordInfo(ctx context.Context, e env, args []string) error {
	return inspectRecordings(ctx, e, "record info", infoUsage, args)
}

func recordVerify(ctx context.Context, e env, args []string) error {
	return inspectRecordings(ctx, e, "record verify", verifyUsage, args)
}

// inspectRecordings runs record info, or record verify. It prints a report on each file, and returns terminal.ErrChecked
// if one is damaged or cannot be read.
func inspectRecordings(ctx context.Context, e env, name, usage string, args []string) error {
	f := e.flags(name, usage)
	asJSON := f.Bool("json", false, "print the result as JSON, an object for each file (docs/json.md)")
	files, err := parseFiles(f, args, 1, math.MaxInt)
	if err != nil {
		return err
	}
	good, verify := true, usage == verifyUsage
	for i, path := range files {
		progress := terminal.NewProgress(e.Err, path)
		r, err := record.Inspect(ctx, path, verify, progress.Show)
		progress.End()
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted in %s, after %d of %d files", path, i, len(files))
			}
			fmt.Fprintf(e.Err, "tegracast record: %s\n", printable.Lines(err.Error()))
			good = false
			continue
		}
		if good = good && r.Good(); *asJSON {
			err = terminal.WriteJSON(e.Out, r)
		} else {
			err = printReport(e.Out, r, verify)
		}
		if err != nil {
			return err
		}
	}
	if !good {
		return terminal.ErrChecked
	}
	return nil
}

// recordRepair repairs recordings that were not finished, and prints what it did. It returns terminal.ErrChecked if one
// cannot be repaired.
func recordRepair(ctx context.Context, e env, args []string) error {
	files, err := parseFiles(e.flags("record repair", repairUsage), args, 1, math.MaxInt)
	if err != nil {
		return err
	}
	good := true
	for i, path := range files {
		r, err := record.Repair(ctx, path)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted in %s, after %d of %d files", path, i, len(files))
		}
		if err != nil {
			fmt.Fprintf(e.Err, "tegracast record: %s\n", printable.Lines(err.Error()))
			good = false
			continue
		}
		state := "is finished, nothing to repair"
		if !r.Finished {
			state = fmt.Sprintf("repaired: %d parts in the index, %d torn bytes cut off or skipped", r.Chunks, r.Cut+r.Skipped)
			if r.Left > 0 {
				state += fmt.Sprintf(", %d damaged ones left out", r.Left)
			}
		}
		if _, err := fmt.Fprintf(e.Out, "%s: %s\n", printable.Text(path), state); err != nil {
			return err
		}
	}
	if !good {
		return terminal.ErrChecked
	}
	return nil
}
