// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/export"
)

const exportUsage = `Usage: tegracast record export FILE... --output OUT [--format FORMAT]
                               [--from PLACE] [--to PLACE] [--bitrate N]
                               [--config FILE [--isp NAME]]

Writes the frames of recordings, one file after the other, in another format:

  mcap      a recording of its own: the frames bit by bit, with their notes,
            triggers, the camera's settings and the configuration
  y4m       pictures (recorded behind an isp) for ffmpeg, mpv and the like
  png       a folder with a file for each frame: pictures in RGB, a sensor's
            samples in grey
  dng       a folder with a raw photograph for each frame of a sensor's samples,
            for darktable, RawTherapee, dcraw and libraw
  mp4       H.264 by openh264, for any player; a sensor's samples go through an
            isp: that of the default configuration, or of the one in --config.
            The pictures of an MP4 recording stay as they are
  mkv       Matroska without loss (FFV1), by ffmpeg; a sensor's samples in grey

A PLACE is the number of a frame, such as 1200 (record info prints which there
are), +40 for 40 frames after the first one, a time since the first frame, such
as 1m30s, or a time, such as 2026-11-24T06:33:02.5Z. The frame at --to is not
exported. A terminal shows the progress.

  tegracast record export front-*.mcap --from 1m30s --to 1m40s -o event.mcap
  tegracast record export event.mcap --from 1200 --to 1201 --format dng -o raw

A file without an end is read as far as it is whole. A damaged frame is left
out, and the status is 1.
`

// recordExport writes the frames of recordings in another format. It returns terminal.ErrChecked if a recording cannot be
// read completely.
func recordExport(ctx context.Context, e env, args []string) error {
	f := e.flags("record export", exportUsage)
	var x export.Config
	f.StringVarP(&x.Out, "output", "o", "", "write to `FILE`, for png and dng a folder")
	f.StringVar(&x.Format, "format", "", "write the `FORMAT` "+export.Formats+" (default: the ending of the output's name)")
	var v videoOptions
	f.IntVar(&v.bitrate, "bitrate", 0, "of mp4: encode with `N` kbit/s; 0 is a tenth of a bit for each pixel")
	f.StringVar(&v.config, "config", "", "of mp4: take the isp for a sensor's samples from the configuration `FILE`")
	f.StringVar(&v.isp, "isp", "", "of mp4: take the isp `NAME`, if that file has several")
	place := func(p *record.Position) func(string) error {
		return func(text string) error { return p.UnmarshalText([]byte(text)) }
	}
	f.Func("from", "begin at `PLACE` (default: the first frame)", place(&x.From))
	f.Func("to", "end before `PLACE` (default: after the last frame)", place(&x.To))
	var err error
	if x.Files, err = parseFiles(f, args, 1, math.MaxInt); err != nil {
		return err
	}
	if x.Out == "" {
		return terminal.UsageError{Err: errors.New("name the destination with --output: try tegracast record export --help")}
	}
	if x.Format = cmp.Or(x.Format, export.FormatOf(x.Out)); x.Format == "" {
		return terminal.UsageError{Err: fmt.Errorf("%s does not say which format: give --format %s", x.Out, export.Formats)}
	}
	if err := v.check(x.Format, x.Files); err != nil {
		return err
	}
	x.Video = v.open
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
