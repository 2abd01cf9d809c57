// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"time"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// Errors about a recording that is being read. They may be wrapped.
var (
	ErrNoFrames = errors.New("it has no frames that can be played")
	ErrRange    = errors.New("there is no frame")
	ErrFormat   = errors.New("its frames are of another format")
	ErrEnd      = errors.New("the end of the recording")

	errNoImage = errors.New("record: the chunk has no frame") // of the channel that is played
)

// Names of the schemas of this project's recordings.
const (
	imageName    = "sensor_msgs/msg/Image"
	packedName   = "tegracast/msg/PackedImage"
	noteName     = "tegracast/Frame"
	triggerName  = "tegracast/Trigger"
	settingsName = "tegracast/Settings"
)

// A Reader reads the frames of a recording that belong to one channel. Chunks of this project's recordings contain one
// frame or none, those of others any number.
type Reader struct {
	*mcap.File
	Path   string
	Format pipeline.Format // of all frames

	plain   *os.File
	file    *cufile.File // nil if pixels cannot be read
	first   int          // first chunk with an undamaged frame
	began   time.Time    // time of that frame
	chosen  bool         // channel is that of the frames; until it is true, the images of all channels are listed
	channel uint16
	refused map[uint16]bool // channels whose images cannot be played
	listed  listing
	settled settled
	whole   int // number + 1 of the chunk of several frames that was verified last; 0: none
}

// A Frame is a frame of a recording.
type Frame struct {
	Note  Note
	Image Image
	At    time.Time // log time of its message: Times.Shown when this project recorded it

	reader  *Reader
	chunk   int
	message mcap.MessageInfo
	beside  []mcap.MessageInfo // messages of the chunk that belong to the frame
	alone   bool               // it is the only frame of its chunk
	how     conversion         // of the pixels in the file
	noted   bool               // the frame has a note
	packed  bool               // the camera delivered unpacked words, which were packed when recorded; the note's CRC is that of the unpacked words
}

// OpenReader opens a recording. driver reads its pixels; it may be nil if they are not needed. Errors wrap ErrNoFrames,
// ErrFormat or an error of package mcap, or are those of ctx, the file or the driver.
func OpenReader(ctx context.Context, path string, driver *cufile.Driver) (*Reader, error) {
	plain, size, err := files.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	r, err := newReader(ctx, path, plain, size)
	if err == nil {
		if r.plain = plain; driver != nil {
			r.file, err = driver.RegisterFile(plain)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), plain.Close())
	}
	return r, nil
}

func newReader(ctx context.Context, path string, in io.ReaderAt, size int64) (*Reader, error) {
	file, err := mcap.Open(ctx, in, size)
	if err != nil {
		return nil, err
	}
	r := &Reader{File: file, Path: path, refused: map[uint16]bool{}}
	return r, r.findFormat()
}

// Close closes the file.
func (r *Reader) Close() error {
	var errs []error
	if r.file != nil {
		errs = append(errs, r.file.Deregister())
	}
	return errors.Join(append(errs, r.plain.Close())...)
}

// findFormat sets the format to that of the first undamaged frame of a channel that can be played.
func (r *Reader) findFormat() error {
	why := r.Trouble
	for i := range r.Chunks {
		err := r.formatOfChunk(i)
		if err == nil {
			r.first, r.listed = i, listing{}
			return nil
		}
		if errors.Is(err, errNoImage) {
			continue
		}
		if why == nil {
			why = err
		}
		if !errors.Is(err, mcap.ErrDamaged) && !(errors.Is(err, errUnplayable) && r.hasOthers()) {
			break
		}
	}
	if why == nil {
		return ErrNoFrames
	}
	return fmt.Errorf("%w: %w", ErrNoFrames, why)
}

func (r *Reader) formatOfChunk(i int) (err error) {
	if _, err := r.VerifyChunk(i); err != nil {
		return err
	}
	list, err := r.frames(i)
	if err != nil {
		return err
	}
	for n, found := range list {
		m := found.image
		f, _, wrong := playable(r.File, m)
		if wrong == nil {
			r.Format, r.chosen, r.channel, r.began = f, true, m.Channel, time.Unix(0, int64(m.Log))
			return nil
		}
		if n == 0 {
			err = wrong
		}
		if !errors.Is(wrong, errUnplayable) {
			return wrong
		}
		r.refused[m.Channel] = true
	}
	return err
}

// Pixels reads the frame's pixels into b, which must be outside the Go heap and have at least Image.Size bytes, and
// verifies the checksum of the frame's chunk, if there is one. The recording must have been opened with a driver.
// Errors wrap errors of package mcap, or are the file's.
func (f *Frame) Pixels(b []byte) error {
	b = b[:f.Image.Size]
	if err := f.read(b); err != nil {
		return fmt.Errorf("%s: frame %d: %w", f.reader.Path, f.Note.Frame, err)
	}
	f.how.convert(b, f.reader.Format)
	return nil
}

// read reads the pixels as they are in the file.
func (f *Frame) read(b []byte) error {
	r := f.reader
	if f.message.Compressed() {
		return r.ReadInto(b, f.message, int64(f.Image.Pixels))
	}
	pixels := f.pixels()
	n, err := r.file.Read(address(b), len(b), pixels, 0)
	switch {
	case err != nil:
		return err
	case n < len(b):
		return fmt.Errorf("%w: it ends at byte %d, within a frame", mcap.ErrDamaged, pixels+int64(n))
	case f.alone:
		_, err = r.VerifyRead(f.chunk, b, pixels)
		return err
	case r.whole == f.chunk+1:
		return nil
	}
	if _, err = r.VerifyChunk(f.chunk); err == nil {
		r.whole = f.chunk + 1
	}
	return err
}

// pixels returns the offset of the pixels in the file.
func (f *Frame) pixels() int64 { return f.message.Offset + int64(f.Image.Pixels) }

// find returns the first chunk with a frame whose number is at least number, or the number of chunks if there is none.
// The frames must be in the order of their numbers.
func (r *Reader) find(number uint64) int {
	return sort.Search(len(r.Chunks), func(i int) bool {
		for ; i < len(r.Chunks); i++ {
			if f, err := r.Frame(i, r.count(i)-1); err == nil {
				return f.Note.Frame >= number
			}
		}
		return true
	})
}

// number returns the number of frame n of chunk i, or 0 if it cannot be read.
func (r *Reader) number(i, n int) uint64 {
	f, err := r.Frame(i, n)
	if err != nil {
		return 0
	}
	return f.Note.Frame
}

// Fill sets the recorded fields of out, except the pixels and, in a packed recording, the CRC. It adds flags and
// results to those of out.
func (f *Frame) Fill(out *pipeline.Frame) {
	n := &f.Note
	out.Group = n.Group
	if out.Sequence = n.Frame; !f.packed { // otherwise the CRC is that of other bytes
		out.CRC = n.CRC
	}
	out.Times = pipeline.Times{
		ExposureStart: timeOf(n.ExposureStart), ExposureEnd: timeOf(n.ExposureEnd), Uncertainty: time.Duration(n.Uncertainty),
		Captured: timeOf(n.Captured),
	}
	if n.Padded {
		out.Flags |= pipeline.FlagPadded
	}
	if n.Unverified {
		out.Flags |= pipeline.FlagUnverified
	}
	out.Results = append(out.Results, n.Results...)
}

// timeOf is the inverse of nano.
func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
