// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// spanPart is the number of bytes that are copied between two looks at the context.
const spanPart = 1 << 20

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
	if err = errors.Join(copySpan(ctx, out, clip.Span, progress), out.Close()); err != nil {
		return res, errors.Join(err, os.Remove(c.Out))
	}
	res.Frames, res.Damaged = clip.Len(), clip.Missing()
	return res, nil
}

// copySpan writes a span to out. progress is called with the completed fraction.
func copySpan(ctx context.Context, out io.Writer, span *mp4.Span, progress func(part float64)) error {
	size := span.Size()
	in := io.NewSectionReader(span, 0, size)
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.CopyN(out, in, min(spanPart, size-at))
		if err != nil {
			return err
		}
		at += n
		progress(float64(at) / float64(size))
	}
	return nil
}
