// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/pipeline/record"
)

const recordUsage = `Usage: tegracast record info | verify [--json] FILE...

Looks at recordings (outputs with record; MCAP files).

  info      what is in them: frames, times, size of the pictures, losses
  verify    the same, and every byte against its checksum

A file that has no end, since it is still being written or the power was cut, is
read as far as it is whole. Status 0 when all is as it was written, 1 when a file
is damaged or cannot be read.
`

func recordCommand(ctx context.Context, e env, args []string) error {
	f := e.flags("record", recordUsage)
	asJSON := f.Bool("json", false, "print the result as JSON: an object for each file")
	if err := f.Parse(args); err != nil {
		return parseError(f, err)
	}
	a := f.Args()
	if len(a) < 2 || a[0] != "info" && a[0] != "verify" {
		return command.UsageError{Err: errors.New("use info FILE or verify FILE: try tegracast record --help")}
	}
	good := true
	for _, path := range a[1:] {
		r, err := record.Inspect(ctx, path, a[0] == "verify", e.progress(path))
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			fmt.Fprintf(e.Err, "tegracast record: %v\n", err)
			good = false
			continue
		}
		if good = good && r.Good(); *asJSON {
			out := json.NewEncoder(e.Out)
			out.SetIndent("", "  ")
			err = out.Encode(r)
		} else {
			err = printReport(e.Out, r, a[0] == "verify")
		}
		if err != nil {
			return err
		}
	}
	if !good {
		return command.ErrChecked
	}
	return nil
}

// progress says on a terminal, once a second, how much is done.
func (e env) progress(path string) func(part float64) {
	next := time.Now().Add(time.Second)
	return func(part float64) {
		if now := time.Now(); command.Terminal(e.Err) && now.After(next) && part < 1 {
			next = now.Add(time.Second)
			fmt.Fprintf(e.Err, "%s: %.0f %%\n", path, 100*part)
		}
	}
}

// printReport tells people what a recording has.
func printReport(w io.Writer, r *record.Report, verified bool) error {
	state := "finished"
	switch {
	case r.Trouble != "":
		state = "DAMAGED: " + r.Trouble
	case !r.Finished:
		state = fmt.Sprintf("not finished: %d of %d bytes are whole", r.Readable, r.Bytes)
	}
	fmt.Fprintf(w, "%s: %s\n", r.Path, state)
	if i := r.Image; i != nil {
		rate := r.About["rate"]
		fmt.Fprintf(w, "pictures  %dx%d %s, pixels %s, %s a second, from %s\n", i.Width, i.Height, i.Encoding, r.About["pixels"], rate, i.FrameID)
		fmt.Fprintf(w, "frames    %d in %.3f s, %d lost\n", r.Frames, r.Last.Sub(r.First).Seconds(), r.Lost)
		fmt.Fprintf(w, "times     %s to %s\n", r.First.UTC().Format(time.RFC3339Nano), r.Last.UTC().Format(time.RFC3339Nano))
	} else {
		fmt.Fprintf(w, "frames    0\n")
	}
	for _, s := range r.Settings {
		fmt.Fprintf(w, "camera    exposure %v, gain %.2f\n", s.Exposure, s.Gain)
	}
	for _, t := range r.Triggers {
		fmt.Fprintf(w, "trigger   %s at frame %d, by %s\n", time.Unix(0, t.At).UTC().Format(time.RFC3339Nano), t.Frame, t.Cause)
	}
	if verified {
		fmt.Fprintf(w, "checksums %d of %d frames right, %d by the FPGA's own\n", r.Checked, r.Frames+len(r.Wrong), r.Traced)
	}
	for _, s := range r.Wrong {
		fmt.Fprintf(w, "wrong     %s\n", s)
	}
	_, err := fmt.Fprintf(w, "size      %.1f MB, by %s\n", float64(r.Bytes)/1e6, r.Library)
	return err
}
