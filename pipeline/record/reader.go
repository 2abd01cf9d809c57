// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
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

// Errors about a recording that is being read. They are returned wrapped, with the operation and the place.
var (
	ErrNoFrames = errors.New("it has no frames that can be played")
	ErrFormat   = errors.New("its frames are of another format")
	ErrEnd      = errors.New("the end of the recording")

	errNoImage = errors.New("record: the chunk has no frame") // but something else, which is not played
)

// Names of the schemas.
const (
	imageName    = "sensor_msgs/msg/Image"
	packedName   = "tegracast/msg/PackedImage"
	noteName     = "tegracast/Frame"
	triggerName  = "tegracast/Trigger"
	settingsName = "tegracast/Settings"
)

// A Reader reads a recording. Frame i is the one in chunk i of the file; a chunk may contain no frame.
type Reader struct {
	*mcap.File
	Path   string
	Format pipeline.Format // of all frames

	plain *os.File
	file  *cufile.File // nil if pixels cannot be read
	first int          // first chunk with an undamaged frame
}

// A Frame is a frame of a recording.
type Frame struct {
	Note  Note
	Image Image
	At    time.Time // Times.Shown of the frame

	reader *Reader
	chunk  int
	pixels int64 // offset of the pixels in the file
	packed bool  // the camera delivered unpacked words, which were packed when recorded; the note's CRC is that of the unpacked words
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
	r := &Reader{File: file, Path: path}
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

// findFormat sets the format to that of the first undamaged frame.
func (r *Reader) findFormat() error {
	why := r.Trouble
	for i := range r.Chunks {
		err := r.formatOfChunk(i)
		if err == nil {
			r.first = i
			return nil
		}
		if errors.Is(err, errNoImage) {
			continue
		}
		if why == nil {
			why = err
		}
		if !errors.Is(err, mcap.ErrDamaged) {
			break
		}
	}
	if why == nil {
		return ErrNoFrames
	}
	return fmt.Errorf("%w: %w", ErrNoFrames, why)
}

func (r *Reader) formatOfChunk(i int) error {
	if _, err := r.VerifyChunk(i); err != nil {
		return err
	}
	m, _, err := r.messages(i)
	if err != nil {
		return err
	}
	image, err := readImage(r.File, m)
	if err != nil {
		return err
	}
	r.Format, err = formatOf(r.Channels[m.Channel].Metadata, image)
	return err
}

// formatOf returns the format of an image, according to its channel's metadata.
func formatOf(about map[string]string, i Image) (f pipeline.Format, err error) {
	p := about["pixels"]
	if len(p) != 4 {
		return f, fmt.Errorf("%w: its channel does not name the pixel format (%s), as recordings of tegracast do", ErrNoFrames, i.Encoding)
	}
	f = pipeline.Format{
		Pixel: pipeline.PixelFormat(p[0]) | pipeline.PixelFormat(p[1])<<8 | pipeline.PixelFormat(p[2])<<16 | pipeline.PixelFormat(p[3])<<24,
		Width: i.Width, Height: i.Height, Stride: i.Step,
	}
	_ = f.Rate.UnmarshalText([]byte(about["rate"])) // otherwise the rate is variable
	for f.Color = pipeline.BT601Limited; f.Color > 0 && f.Color.String() != about["color"]; f.Color-- {
	}
	if err := f.Validate(); err != nil {
		return f, err
	}
	if f.Size() != i.Size {
		return f, fmt.Errorf("%w: %s has %d bytes, the frame %d", ErrFormat, f, f.Size(), i.Size)
	}
	return f, nil
}

// messages returns the frame and the note of chunk i. If there is no note, note.Channel is 0. If there is no frame, the
// error is errNoImage, unless the chunk is damaged.
func (r *Reader) messages(i int) (image, note mcap.MessageInfo, err error) {
	list, err := r.Messages(i)
	if err != nil {
		return image, note, err
	}
	images := 0
	for _, m := range list {
		switch r.schema(m) {
		case imageName, packedName:
			image = m
			images++
		case noteName:
			note = m
		}
	}
	if images == 0 { // perhaps because the chunk is damaged
		_, err := r.VerifyChunk(i)
		return image, note, cmp.Or(err, errNoImage)
	}
	if images > 1 {
		return image, note, fmt.Errorf("%w: chunk %d has %d images, and should have one", mcap.ErrDamaged, i, images)
	}
	return image, note, nil
}

// readImage reads the fields of an image except its pixels.
func readImage(f *mcap.File, m mcap.MessageInfo) (Image, error) {
	if m.Size > mcap.MaxMessage { // which may be a hole of the file
		return Image{}, fmt.Errorf("%w: the message at byte %d has %d bytes, more than a frame", mcap.ErrDamaged, m.Offset, m.Size)
	}
	head := m
	head.Size = min(m.Size, page)
	b, err := f.Read(head)
	if err != nil {
		return Image{}, err
	}
	return ParseImage(b, int(m.Size))
}

// Frame finds frame i, and reads everything except its pixels. Errors wrap mcap.ErrDamaged, mcap.ErrCompressed or
// ErrFormat, are the file's, or mean that chunk i contains no frame.
func (r *Reader) Frame(i int) (*Frame, error) {
	m, n, err := r.messages(i)
	if err != nil {
		return nil, err
	}
	f := &Frame{At: time.Unix(0, int64(m.Log)), reader: r, chunk: i, Note: Note{Frame: uint64(m.Sequence), ExposureStart: int64(m.Log)}}
	if f.Image, err = readImage(r.File, m); err != nil {
		return nil, err
	}
	if i := f.Image; i.Width != r.Format.Width || i.Height != r.Format.Height || i.Step != r.Format.Stride || i.Size != r.Format.Size() {
		return nil, fmt.Errorf("%w: chunk %d: %dx%d with lines of %d bytes", ErrFormat, f.chunk, i.Width, i.Height, i.Step)
	}
	if c := r.Chunks[i]; c.Length > int64(f.Image.Size)+maxBeside {
		return nil, fmt.Errorf("%w: chunk %d has %d bytes, its frame %d", mcap.ErrDamaged, i, c.Length, f.Image.Size)
	}
	f.pixels = m.Offset + int64(f.Image.Pixels)
	f.packed = r.Channels[m.Channel].Metadata[unpackedKey] != ""
	if n.Channel == 0 {
		return f, nil
	}
	if n.Size > maxNote {
		return nil, fmt.Errorf("%w: chunk %d: the note of the frame has %d bytes", mcap.ErrDamaged, i, n.Size)
	}
	f.Note = Note{}
	if err := readNote(r.File, n, &f.Note); err != nil {
		return nil, fmt.Errorf("%w: chunk %d: the note of the frame: %w", mcap.ErrDamaged, i, err)
	}
	return f, nil
}

// Pixels reads the frame's pixels into b, which must be outside the Go heap, and verifies the checksum of its chunk.
// Errors wrap mcap.ErrDamaged, or are the file's.
func (f *Frame) Pixels(b []byte) error {
	r := f.reader
	b = b[:f.Image.Size]
	n, err := r.file.Read(address(b), len(b), f.pixels, 0)
	if err == nil && n < len(b) {
		err = fmt.Errorf("%w: it ends at byte %d, within a frame", mcap.ErrDamaged, f.pixels+int64(n))
	}
	if err == nil {
		_, err = r.VerifyRead(f.chunk, b, f.pixels)
	}
	if err != nil {
		return fmt.Errorf("%s: frame %d: %w", r.Path, f.Note.Frame, err)
	}
	return nil
}

// find returns the first frame of the file whose number is at least number, or the number of chunks if there is none.
// Frames are in the order of their numbers.
func (r *Reader) find(number uint64) int {
	return sort.Search(len(r.Chunks), func(i int) bool {
		for ; i < len(r.Chunks); i++ {
			if f, err := r.Frame(i); err == nil {
				return f.Note.Frame >= number
			}
		}
		return true
	})
}

// Fill sets all recorded fields of out, except the pixels and, in a packed recording, the CRC.
func (f *Frame) Fill(out *pipeline.Frame) {
	n := &f.Note
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
