// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/export"
)

const recordUsage = `Usage: tegracast record info | verify [--json] FILE...
       tegracast record export FILE... --output OUT [--format FORMAT]
                               [--from PLACE] [--to PLACE]
       tegracast record repair FILE...

Looks at recordings (outputs with record; MCAP files).

  info      what is in them: frames, times, size of the pictures, losses
  verify    the same, and every byte against its checksum
  export    writes their frames, one file after the other, in another format
  repair    ends a file that was not ended: writes its index behind the last whole
            frame, and cuts off what is torn. serve does so when it starts

A file that has no end, since it is still being written or the power was cut, is
read as far as it is whole. Status 0 when all is as it was written, 1 when a file
is damaged or cannot be read.

Formats of export:

  mcap      a recording of its own: the frames bit by bit, with their notes,
            triggers, the camera's settings and the configuration
  y4m       pictures (recorded behind an isp) for ffmpeg, mpv and the like
  png       a folder with a file for each frame: pictures in RGB, a sensor's
            samples in grey
  dng       a folder with a raw photograph for each frame of a sensor's samples,
            for darktable, RawTherapee, dcraw and libraw
  mkv       Matroska without loss (FFV1), by ffmpeg; a sensor's samples in grey

A PLACE is a time since the first frame, such as 1m30s, or the number of a frame,
such as 1200, as info and the results of stages give it. The frame at --to is not
exported. A damaged frame is left out, and the status is 1. A terminal shows the
progress of verify and export.

  tegracast record export front-*.mcap --from 1m30s --to 1m40s -o event.mcap
  tegracast record export event.mcap --from 1200 --to 1201 --format dng -o raw
`

func recordCommand(ctx context.Context, e env, args []string) error {
	f := e.flags("record", recordUsage)
	asJSON := f.Bool("json", false, "info and verify: print the result as JSON, an object for each file")
	var x export.Config
	f.StringVarP(&x.Out, "output", "o", "", "export: the file, or the folder for png and dng")
	f.StringVar(&x.Format, "format", "", "export: "+export.Formats+" (default: the ending of the output's name)")
	place := func(p *record.Position) func(string) error {
		return func(text string) error { return p.UnmarshalText([]byte(text)) }
	}
	f.Func("from", "export: the `place` at which to begin (default: the first frame)", place(&x.From))
	f.Func("to", "export: the `place` before which to end (default: after the last frame)", place(&x.To))
	if err := parseOptions(f, args); err != nil {
		return err
	}
	a := f.Args()
	if len(a) < 2 || !slices.Contains(subcommands["record"], a[0]) {
		return misused(f, map[string]int{"info": 1, "verify": 1, "export": 1, "repair": 1}, "info FILE, verify FILE, export FILE or repair FILE")
	}
	x.Files = a[1:]
	own := map[string][]string{"info": {"json"}, "verify": {"json"}, "export": {"output", "format", "from", "to"}}[a[0]]
	for _, name := range []string{"json", "output", "format", "from", "to"} {
		if f.Changed(name) && !slices.Contains(own, name) {
			return terminal.UsageError{Err: fmt.Errorf("--%s is not for %s: try tegracast record --help", name, a[0])}
		}
	}
	switch a[0] {
	case "export":
		return exportRecording(ctx, e, x)
	case "repair":
		return repairRecordings(ctx, e, x.Files)
	}
	return inspectRecordings(ctx, e, a[1:], a[0] == "verify", *asJSON)
}

// inspectRecordings prints a report on each file. It returns terminal.ErrChecked if one is damaged or cannot be read.
func inspectRecordings(ctx context.Context, e env, files []string, verify, asJSON bool) error {
	good := true
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
		if good = good && r.Good(); asJSON {
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

// repairRecordings repairs recordings that were not finished, and prints what it did. It returns terminal.ErrChecked if
// one cannot be repaired.
func repairRecordings(ctx context.Context, e env, files []string) error {
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
			state = fmt.Sprintf("repaired: %d chunks in the index, %d torn bytes cut off or skipped", r.Chunks, r.Cut+r.Skipped)
			if r.Left > 0 {
				state += fmt.Sprintf(", %d damaged chunks left out", r.Left)
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

// exportRecording writes the frames of recordings in another format. It returns terminal.ErrChecked if a recording
// cannot be read completely.
func exportRecording(ctx context.Context, e env, x export.Config) error {
	if x.Out == "" {
		return terminal.UsageError{Err: errors.New("name the destination with --output: try tegracast record --help")}
	}
	if x.Format = cmp.Or(x.Format, export.FormatOf(x.Out)); x.Format == "" {
		return terminal.UsageError{Err: fmt.Errorf("%s does not say which format: give --format %s", x.Out, export.Formats)}
	}
	driver, err := cufile.Open(cufile.Config{Logger: e.Log})
	if err != nil {
		return err
	}
	x.Driver = driver
	progress := terminal.NewProgress(e.Err, x.Out)
	res, err := export.Run(ctx, x, progress.Show)
	progress.End()
	switch err = errors.Join(err, driver.Close()); {
	case ctx.Err() != nil && err != nil:
		return fmt.Errorf("interrupted after %d frames: %s is removed if it is a file, and keeps them if it is a folder", res.Frames, x.Out)
	case errors.Is(err, export.ErrUnknown):
		return terminal.UsageError{Err: err}
	case err != nil:
		return err
	}
	for _, why := range res.Damaged {
		fmt.Fprintf(e.Err, "damaged: %s\n", printable.Lines(why.Error()))
	}
	_, err = fmt.Fprintf(e.Out, "%s: %d frames, %d left out\n", printable.Text(x.Out), res.Frames, res.Lost)
	if err != nil || len(res.Damaged) == 0 {
		return err
	}
	return terminal.ErrChecked
}
