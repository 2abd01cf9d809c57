// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// A Video makes H.264 of frames.
type Video interface {
	// Encode returns the access unit of f as a byte stream (ITU-T H.264 Annex B), valid until the next call. If key is
	// true it is a key picture.
	Encode(ctx context.Context, f *pipeline.Frame, key bool) ([]byte, error)
	// ParameterSets returns the SPS and the PPS of all units, without start codes.
	ParameterSets() (sps, pps []byte)
	Close() error
}

// keyTime is the time between two key pictures.
const keyTime = 2 * time.Second

// longGap is the longest time between two frames that an MP4 file has. Longer ones are pauses between recordings, which
// are left out.
const longGap = 10 * time.Second

// mp4Writer writes an MP4 file: first the pictures into a temporary file in the same folder, then, when all are known,
// the index and the pictures into the file itself.
type mp4Writer struct {
	ctx    context.Context
	format pipeline.Format
	video  Video
	file   *os.File
	parts  *os.File // the temporary file, which has no name
	writer *mp4.Writer
	group  []mp4.Sample // a key picture and those that follow it
	shown  time.Time    // time of the newest frame
	at     time.Time    // the same in the file, without pauses
}

// newMP4 returns a maker that opens an encoder with open.
func newMP4(open func(pipeline.Format) (Video, error)) maker {
	return func(ctx context.Context, f pipeline.Format, out string) (writer, error) {
		if _, samples := f.Pixel.Samples(); !samples && f.Pixel != pipeline.UYVY && f.Pixel != pipeline.I420 {
			return nil, cannot(f, "MP4", "UYVY, YU12 or a sensor's samples here", "export png")
		}
		f.Rate = rateOf(f)
		video, err := open(f)
		if err != nil {
			return nil, err
		}
		w := &mp4Writer{ctx: ctx, format: f, video: video}
		if w.file, err = create(out); err != nil {
			return nil, errors.Join(err, video.Close())
		}
		if w.parts, err = os.CreateTemp(filepath.Dir(out), ".tegracast-*.mp4"); err == nil {
			err = os.Remove(w.parts.Name())
		}
		if err != nil {
			return nil, errors.Join(err, w.close(), os.Remove(out))
		}
		return w, nil
	}
}

func (w *mp4Writer) addFrame(r *record.Frame, pixels []byte) error {
	f := &pipeline.Frame{Format: w.format, Bytes: pixels[:w.format.Size()]}
	r.Fill(f)
	if w.at.IsZero() {
		w.shown, w.at = r.At, r.At
	}
	step := r.At.Sub(w.shown)
	if step < 0 || step > longGap {
		step = w.format.Rate.Period()
	}
	w.shown, w.at = r.At, w.at.Add(step)
	key := len(w.group) == 0 || w.at.Sub(w.group[0].At) >= keyTime
	if key {
		if err := w.writeGroup(w.at); err != nil {
			return err
		}
	}
	unit, err := w.video.Encode(w.ctx, f, key)
	if err != nil {
		return err
	}
	w.group = append(w.group, mp4.Sample{Data: bytes.Clone(unit), Key: key, At: w.at})
	return nil
}

// writeGroup writes the pictures since the last key picture, after which the next one has the time end.
func (w *mp4Writer) writeGroup(end time.Time) (err error) {
	if len(w.group) == 0 {
		return nil
	}
	if w.writer == nil {
		sps, pps := w.video.ParameterSets()
		if w.writer, err = mp4.NewWriter(w.parts, mp4.Track{Codec: mp4.H264, SPS: sps, PPS: pps}, w.group[0].At); err != nil {
			return err
		}
	}
	err = w.writer.Fragment(w.group, end)
	w.group = w.group[:0]
	return err
}

func (w *mp4Writer) finish() error {
	err := w.ctx.Err()
	if err == nil {
		err = w.writeGroup(w.at.Add(w.format.Rate.Period()))
	}
	switch {
	case err == nil && w.writer == nil:
		err = fmt.Errorf("%w: each is damaged", record.ErrNoFrames)
	case err == nil:
		err = w.copy()
	}
	return errors.Join(err, w.close())
}

// copy copies the pictures from the temporary file to the file, with their index before them.
func (w *mp4Writer) copy() error {
	if err := w.writer.Close(); err != nil {
		return err
	}
	size, err := w.parts.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	parts, err := mp4.Read(w.parts, size)
	if err != nil {
		return err
	}
	span, err := parts.Span(0, parts.Len())
	if err != nil {
		return err
	}
	return copySpan(w.ctx, w.file, span, func(float64) {})
}

// close closes the files and the encoder.
func (w *mp4Writer) close() error {
	err := errors.Join(w.file.Close(), w.video.Close())
	if w.parts != nil {
		err = errors.Join(err, w.parts.Close())
	}
	return err
}
