// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tegracast/tegracast/pipeline/record"
)

// clipPart is the number of bytes that are copied between two looks at the context.
const clipPart = 4 << 20

// exportClip writes pictures of an MP4 recording, as they are, as an MP4 file without fragments.
func exportClip(ctx context.Context, c Config, progress func(part float64)) (res Result, err error) {
	switch {
	case len(c.Files) > 1:
		return res, fmt.Errorf("%s: an MP4 recording is exported alone: name one file", c.Files[0])
	case c.Format != "mp4":
		return res, fmt.Errorf("%w: the pictures of %s are encoded already: export mp4", ErrPixels, c.Files[0])
	}
	clip, err := record.OpenVideo(c.Files[0], c.From, c.To)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, clip.Close()) }()
	out, err := create(c.Out)
	if err != nil {
		return res, err
	}
	for at := int64(0); at < clip.Size() && err == nil; at += clipPart {
		if err = ctx.Err(); err == nil {
			_, err = io.Copy(out, io.NewSectionReader(clip, at, min(clipPart, clip.Size()-at)))
			progress(float64(min(at+clipPart, clip.Size())) / float64(clip.Size()))
		}
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return res, errors.Join(err, os.Remove(c.Out))
	}
	res.Frames = clip.Len()
	return res, nil
}
