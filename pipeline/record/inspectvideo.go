// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
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
	switch inside, err := damagedInside(ctx, f, size); {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case inside:
		r.Trouble = fmt.Sprintf("from byte %d on it is damaged, and the pictures after that point cannot be found", f.Whole)
	}
	if n == 0 {
		return r, nil
	}
	if _, err := noteOf(f, 0); errors.Is(err, errForeign) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.First, r.Last = f.Info(0).At, f.Info(n-1).At
	r.Image = &Image{At: r.First, Width: f.Track.Width, Height: f.Track.Height, Encoding: codecNames[f.Track.Codec]}
	numbers := numbering{file: f}
	for i := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.picture(&numbers, i, verify); err != nil {
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
func (r *Report) picture(numbers *numbering, i int, verify bool) error {
	n, missing, err := numbers.next(i)
	if err != nil {
		return err
	}
	r.triggered(n.Triggers...)
	if r.LastFrame = n.Frame; i == 0 {
		r.FirstFrame = n.Frame
	} else {
		r.Lost += n.Lost
	}
	if verify {
		if _, err := numbers.file.Data(i); err != nil {
			return errors.Join(missing, err)
		}
		r.Checked++
	}
	return missing
}
