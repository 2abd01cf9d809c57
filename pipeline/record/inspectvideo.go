// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// inspectVideo is Inspect for MP4, which has no checksums: with verify, each picture is read, and must consist of whole
// NAL units if it is H.264.
func inspectVideo(ctx context.Context, in *os.File, size int64, path string, verify bool, progress func(part float64)) (*Report, error) {
	f, err := mp4.Read(in, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	n := f.Len()
	r := &Report{Path: path, Bytes: size, Library: "tegracast", Finished: f.Finished, Readable: f.Whole, Frames: n}
	if f.Finished {
		r.Readable = size
	}
	if n == 0 {
		return r, nil
	}
	r.First, r.Last = f.Info(0).At, f.Info(n-1).At
	r.Image = &Image{At: r.First, Width: f.Track.Width, Height: f.Track.Height, Encoding: codecNames[f.Track.Codec]}
	for i := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.picture(f, i, verify); err != nil {
			if len(r.Wrong) == maxWrong {
				break
			}
			r.Wrong = append(r.Wrong, err.Error())
		}
		progress(float64(i+1) / float64(n))
	}
	return r, nil
}

// picture examines picture i, and returns an error if something is wrong with it.
func (r *Report) picture(f *mp4.File, i int, verify bool) error {
	var note Note
	text, err := noteOf(f, i)
	if err == nil {
		err = json.Unmarshal(text, &note)
	}
	if err != nil {
		return fmt.Errorf("picture %d: %w", i, err)
	}
	r.triggered(note.Triggers...)
	if r.LastFrame = note.Frame; i == 0 {
		r.FirstFrame = note.Frame
	} else {
		r.Lost += note.Lost
	}
	if !verify {
		return nil
	}
	if _, err := f.Data(i); err != nil {
		return err
	}
	r.Checked++
	return nil
}
