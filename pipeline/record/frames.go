// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// found is a frame of a chunk, with the chunk's other messages that belong to it: those after it up to the next frame
// and, for the first frame, also those before it. Images of other channels belong to no frame.
type found struct {
	image, note mcap.MessageInfo
	noted       bool // the frame has a note
	beside      []mcap.MessageInfo
}

// A listing contains the frames of one chunk.
type listing struct {
	chunk  int // its number + 1; 0: none
	frames []found
	err    error
}

// frames returns the frames of chunk i, at least one. The error is errNoImage if the chunk is undamaged and contains no
// frame. The result must not be changed.
func (r *Reader) frames(i int) ([]found, error) {
	if r.listed.chunk != i+1 {
		list, err := r.listFrames(i)
		r.listed = listing{i + 1, list, err}
	}
	return r.listed.frames, r.listed.err
}

// count returns the number of frames of chunk i, or 0 if they cannot be listed.
func (r *Reader) count(i int) int {
	list, _ := r.frames(i)
	return len(list)
}

func (r *Reader) listFrames(i int) ([]found, error) {
	messages, err := r.Messages(i)
	if err != nil {
		return nil, err
	}
	var list []found
	var before []mcap.MessageInfo
	notes := map[uint32]mcap.MessageInfo{}
	for _, m := range messages {
		name := r.schema(m)
		image, _ := kindOf(name)
		switch {
		case image && (!r.chosen || m.Channel == r.channel):
			list = append(list, found{image: m, beside: before})
			before = nil
			continue
		case image: // another channel's
			continue
		case name == noteName:
			notes[m.Sequence] = m
		}
		if len(list) > 0 {
			last := &list[len(list)-1]
			last.beside = append(last.beside, m)
		} else {
			before = append(before, m)
		}
	}
	if len(list) == 0 { // perhaps because the chunk is damaged
		_, err := r.VerifyChunk(i)
		return nil, cmp.Or(err, errNoImage)
	}
	for n := range list {
		list[n].note, list[n].noted = notes[list[n].image.Sequence]
	}
	return list, nil
}

// hasOthers reports whether the file may have a channel of uncompressed images that was not refused.
func (r *Reader) hasOthers() bool {
	for id, c := range r.Channels {
		if image, compressed := kindOf(r.Schemas[c.Schema].Name); image && !compressed && !r.refused[id] {
			return true
		}
	}
	return !r.Finished
}

// readImage reads the fields of an image except its pixels. Of compressed images it reads only what both kinds have.
func readImage(f *mcap.File, m mcap.MessageInfo) (Image, error) {
	if m.Size > maxImage { // which may be a hole of the file
		return Image{}, fmt.Errorf("%w: the message at byte %d has %d bytes, more than a frame", mcap.ErrDamaged, m.Offset, m.Size)
	}
	c := f.Channels[m.Channel]
	name := f.Schemas[c.Schema].Name
	numbers, foxglove := protobufOf(name)
	switch {
	case foxglove && c.Encoding == "protobuf":
		return parseProtobuf(numbers, func(b []byte, at int64) error { return f.ReadInto(b, m, at) }, int(m.Size))
	case foxglove || c.Encoding != "" && c.Encoding != "cdr" && c.Encoding != "ros1":
		return Image{}, fmt.Errorf("images of channel %s %w: they are serialised as %q, not as those of ROS or Foxglove",
			c.Topic, errUnplayable, c.Encoding)
	}
	b := make([]byte, min(m.Size, page))
	if err := f.ReadInto(b, m, 0); err != nil {
		return Image{}, err
	}
	_, compressed := kindOf(name)
	if !compressed && c.Encoding != "ros1" {
		return ParseImage(b, int(m.Size))
	}
	return parseROS(b, int(m.Size), c.Encoding == "ros1", compressed)
}

// maxChunk is the maximum size of a chunk in bytes.
const maxChunk = 1 << 30

// Frame finds frame n of chunk i, and reads everything except its pixels. It returns an error if there is no such
// frame, if the frame is damaged or not in the recording's format, or if the file cannot be read.
func (r *Reader) Frame(i, n int) (*Frame, error) {
	list, err := r.frames(i)
	if err != nil {
		return nil, err
	}
	if n < 0 || n >= len(list) {
		return nil, errNoImage
	}
	m := list[n].image
	f := &Frame{
		At: time.Unix(0, int64(m.Log)), Note: Note{Frame: uint64(m.Sequence), ExposureStart: int64(m.Log)},
		reader: r, chunk: i, message: m, beside: list[n].beside, alone: len(list) == 1,
	}
	if f.Image, err = readImage(r.File, m); err != nil {
		return nil, err
	}
	c := r.Channels[m.Channel]
	format, how, err := formatOf(c, f.Image)
	if err != nil {
		return nil, fmt.Errorf("chunk %d: %w", i, err)
	}
	if f.how = how; format != r.Format {
		return nil, fmt.Errorf("%w: chunk %d: %s", ErrFormat, i, format)
	}
	if err := r.checkSize(f); err != nil {
		return nil, err
	}
	f.packed = c.Metadata[unpackedKey] != ""
	if list[n].noted {
		return f, r.readFrameNote(f, list[n].note)
	}
	return f, nil
}

// checkSize returns an error if too many bytes would have to be read to check the frame.
func (r *Reader) checkSize(f *Frame) error {
	size := r.Chunks[f.chunk].Length
	own := r.Channels[f.message.Channel].Metadata["pixels"] != ""
	if f.alone && own && !f.message.Compressed() && size > int64(f.Image.Size)+maxBeside {
		return fmt.Errorf("%w: chunk %d has %d bytes, its frame %d", mcap.ErrDamaged, f.chunk, size, f.Image.Size)
	}
	if size > maxChunk {
		return fmt.Errorf("%w: chunk %d has %d bytes: write the file with chunks of at most %d", ErrFormat, f.chunk, size, maxChunk)
	}
	return nil
}

func (r *Reader) readFrameNote(f *Frame, n mcap.MessageInfo) error {
	if n.Size > maxNote {
		return fmt.Errorf("%w: chunk %d: the note of the frame has %d bytes", mcap.ErrDamaged, f.chunk, n.Size)
	}
	f.Note, f.noted = Note{}, true
	if err := readNote(r.File, n, &f.Note); err != nil {
		return fmt.Errorf("%w: chunk %d: the note of the frame: %w", mcap.ErrDamaged, f.chunk, err)
	}
	return nil
}
