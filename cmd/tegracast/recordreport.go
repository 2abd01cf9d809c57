// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/record"
)

// printReport prints a readable report on a recording. The recording's texts are made printable, so that they cannot
// move the cursor.
func printReport(w io.Writer, r *record.Report, verified bool) error {
	plain := printable.Text
	state := "finished"
	switch {
	case r.Trouble != "":
		state = "DAMAGED: " + r.Trouble
	case !r.Finished:
		state = fmt.Sprintf("not finished: %d of %d bytes are whole", r.Readable, r.Bytes)
	}
	fmt.Fprintf(w, "%s: %s\n", plain(r.Path), plain(state))
	if i := r.Image; i != nil {
		about := ""
		if r.About["pixels"] != "" { // others' recordings do not say
			about = fmt.Sprintf(", pixels %s, %s a second", plain(r.About["pixels"]), plain(r.About["rate"]))
		}
		if i.FrameID != "" { // MP4 does not say
			about += ", from " + plain(i.FrameID)
		}
		fmt.Fprintf(w, "pictures  %dx%d %s%s\n", i.Width, i.Height, plain(i.Encoding), about)
		fmt.Fprintf(w, "frames    %d (%d to %d) in %.3f s, %d lost\n", r.Frames, r.FirstFrame, r.LastFrame, r.Last.Sub(r.First).Seconds(), r.Lost)
		fmt.Fprintf(w, "times     %s to %s\n", r.First.UTC().Format(time.RFC3339Nano), r.Last.UTC().Format(time.RFC3339Nano))
	} else {
		fmt.Fprintf(w, "frames    0\n")
	}
	for _, o := range r.Others {
		fmt.Fprintf(w, "others    %d %s of %s: %s\n", o.Frames, plain(o.Schema), plain(o.Topic), plain(o.Reason))
	}
	for _, s := range r.Settings {
		fmt.Fprintf(w, "camera    exposure %v, gain %.2f\n", s.Exposure, s.Gain)
	}
	for _, t := range r.Triggers {
		fmt.Fprintf(w, "trigger   %s at frame %d, by %s\n", time.Unix(0, t.At).UTC().Format(time.RFC3339Nano), t.Frame, plain(t.Cause))
	}
	switch {
	case verified && filepath.Ext(r.Path) == record.VideoExtension:
		fmt.Fprintf(w, "whole     %d of %d pictures; MP4 has no checksums\n", r.Checked, r.Frames)
	case verified:
		fmt.Fprintf(w, "checksums %d of %d frames right, %d by the FPGA's own\n", r.Checked, r.Frames+len(r.Wrong), r.Traced)
	}
	for _, s := range r.Wrong {
		fmt.Fprintf(w, "wrong     %s\n", plain(s))
	}
	_, err := fmt.Fprintf(w, "size      %.1f MB, by %s\n", float64(r.Bytes)/1e6, plain(r.Library))
	return err
}
