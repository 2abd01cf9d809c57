// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"os"

	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// codecNames are the encodings of MP4 recordings.
var codecNames = [...]string{mp4.H264: "h264", mp4.JPEG: "jpeg"}

// readVideo reads an MP4 recording up to its last whole fragment, without its pictures.
func (e *Entry) readVideo(in *os.File, size int64) error {
	written := locked(in) // asked first, because the file may be finished meanwhile
	if written {
		e.State = BeingWritten
	}
	f, err := mp4.Read(in, size)
	switch {
	case written && size == 0: // its head is not written yet
		return nil
	case err != nil:
		e.Foreign = errors.Is(err, mp4.ErrNotFragmented)
		return fmt.Errorf("%s: %w", e.Path, err)
	case f.Finished:
		e.State = Finished
	case !written:
		e.State = NotFinished
	}
	e.Width, e.Height, e.Encoding = f.Track.Width, f.Track.Height, codecNames[f.Track.Codec]
	n := f.Len()
	if n == 0 {
		return nil
	}
	e.Frames, e.First, e.Last = n, f.Info(0).At, f.Info(n-1).At
	if e.FirstFrame, err = pictureNumber(f, 0); err == nil {
		e.LastFrame, err = pictureNumber(f, n-1)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.Path, err)
	}
	return nil
}
