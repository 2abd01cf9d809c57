// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// A Slice copies frames of recordings to a new recording, bit for bit, with the notes, triggers and camera settings
// that belong to them. Attachments and metadata are those of the first frame's file.
type Slice struct {
	out      io.Writer
	w        *mcap.Writer
	channels map[uint16]mcap.Channel

	reader *Reader // of the previous frame
	next   int     // index of the reader's next chunk to examine
}

// NewSlice begins a recording with the schemas, channels, metadata and attachments of first's file, and the camera's
// settings that applied to first.
func NewSlice(out io.Writer, first *Frame) (*Slice, error) {
	r := first.reader
	r.define(first)
	var schemas []mcap.Schema
	for _, id := range slices.Sorted(maps.Keys(r.Schemas)) {
		schemas = append(schemas, r.Schemas[id])
	}
	var channels []mcap.Channel
	for _, id := range slices.Sorted(maps.Keys(r.Channels)) {
		channels = append(channels, r.Channels[id])
	}
	w, b, err := mcap.NewWriter(r.Profile, r.Library, page, schemas, channels)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		b = w.AppendMetadata(b, name, r.Metadata[name])
	}
	for i, info := range r.Attachments {
		a := info.Attachment
		if a.Data, err = r.ReadAttachment(i); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Path, err)
		}
		b = w.AppendAttachment(b, a)
	}
	b = w.Pad(b, page)
	if _, err = out.Write(b); err != nil {
		return nil, err
	}
	s := &Slice{out: out, w: w, channels: maps.Clone(r.Channels), reader: r, next: first.chunk}
	for i := first.chunk - 1; i >= 0; i-- { // settings that apply to the first frame
		if list := r.beside(i); len(list) > 0 && r.schema(list[0]) == settingsName {
			return s, s.copy(r, list)
		}
	}
	return s, nil
}

// define reads the definitions of channels that are only in the chunks, as in files of other writers.
func (r *Reader) define(first *Frame) {
	if r.Channels[first.message.Channel].Metadata["pixels"] != "" {
		return
	}
	for i := range r.Chunks {
		_, _ = r.Messages(i) // damage shows when its messages are copied
	}
}

// beside returns the messages of chunk i other than images, or nil if it contains a frame or is damaged.
func (r *Reader) beside(i int) []mcap.MessageInfo {
	if _, err := r.frames(i); !errors.Is(err, errNoImage) {
		return nil
	}
	list, _ := r.Messages(i)                                       // cannot fail, because frames has called it
	return slices.DeleteFunc(list, func(m mcap.MessageInfo) bool { // images of another channel
		image, _ := kindOf(r.schema(m))
		return image
	})
}

// schema returns the name of a message's schema.
func (r *Reader) schema(m mcap.MessageInfo) string {
	return r.Schemas[r.Channels[m.Channel].Schema].Name
}

// maxBeside is the maximum size in bytes of a message that is not a frame.
const maxBeside = 1 << 20

// Add adds a frame with the given pixels, which must have been read from it, the messages between the previous frame
// and it, and those after it that belong to it. It may change the pixels temporarily. Errors wrap ErrFormat or errors
// of package mcap, or are those of a file.
func (s *Slice) Add(f *Frame, pixels []byte) error {
	r := f.reader
	if s.reader != r {
		s.reader, s.next = r, 0
	}
	for ; s.next < f.chunk; s.next++ {
		if err := s.copy(r, r.beside(s.next)); err != nil {
			return err
		}
	}
	if err := s.frame(f, pixels); err != nil {
		return err
	}
	for s.next++; s.next < len(r.Chunks); s.next++ {
		list := r.beside(s.next)
		if len(list) == 0 || r.schema(list[0]) == settingsName && list[0].Log > uint64(f.At.UnixNano()) { // belongs to the next frame, if there is one
			break
		}
		if err := s.copy(r, list); err != nil {
			return err
		}
	}
	return nil
}

// frame writes the chunk of a frame.
func (s *Slice) frame(f *Frame, pixels []byte) error {
	r := f.reader
	if err := s.known(r, f.message); err != nil {
		return err
	}
	prefix, err := f.prefix()
	if err != nil {
		return err
	}
	var small []mcap.Part
	for _, m := range f.beside {
		p, err := s.part(r, m)
		if err != nil {
			return err
		}
		small = append(small, p)
	}
	f.how.convert(pixels, r.Format) // back
	defer f.how.convert(pixels, r.Format)
	head, tail, whole, err := s.w.Frame(nil, nil, page, f.message.Message, prefix, pixels, small)
	if err != nil {
		return err
	}
	for _, b := range [][]byte{head, pixels[:whole], tail} {
		if _, err := s.out.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// prefix returns the frame's message without its pixels, which are to follow it. Fields behind the pixels, which only
// protobuf has, are placed before them: there fields may be in any order.
func (f *Frame) prefix() ([]byte, error) {
	i := &f.Image
	if i.Pixels+i.Behind > page {
		return nil, fmt.Errorf("%w: %d bytes", mcap.ErrHead, i.Pixels+i.Behind)
	}
	b := make([]byte, i.Pixels+i.Behind)
	tag := i.Pixels // what precedes the field of the pixels
	if i.Behind > 0 {
		tag = i.Tag
	}
	err := f.reader.ReadInto(b[:tag], f.message, 0)
	if err == nil {
		err = f.reader.ReadInto(b[tag:tag+i.Behind], f.message, int64(i.Pixels+i.Size))
	}
	if err == nil {
		err = f.reader.ReadInto(b[tag+i.Behind:], f.message, int64(tag))
	}
	return b, err
}

// copy writes messages as a separate chunk.
func (s *Slice) copy(r *Reader, list []mcap.MessageInfo) error {
	if len(list) == 0 {
		return nil
	}
	var parts []mcap.Part
	size := int64(0)
	for _, m := range list {
		if size += m.Size; size > maxBeside {
			return fmt.Errorf("%s: %w: messages at byte %d have %d bytes", r.Path, mcap.ErrDamaged, list[0].Offset, size)
		}
		p, err := s.part(r, m)
		if err != nil {
			return err
		}
		parts = append(parts, p)
	}
	_, err := s.out.Write(s.w.Messages(nil, page, parts...))
	return err
}

// known returns an error if the message's channel is not that of the first file.
func (s *Slice) known(r *Reader, m mcap.MessageInfo) error {
	c, is := s.channels[m.Channel]
	if other := r.Channels[m.Channel]; !is || c.Topic != other.Topic || c.Metadata[unpackedKey] != other.Metadata[unpackedKey] {
		return fmt.Errorf("%s: %w: channel %d, %s, is not that of the first file: export it by itself",
			r.Path, ErrFormat, m.Channel, r.Channels[m.Channel].Topic)
	}
	return nil
}

// part reads a message, whose channel must be that of the first file.
func (s *Slice) part(r *Reader, m mcap.MessageInfo) (mcap.Part, error) {
	if err := s.known(r, m); err != nil {
		return mcap.Part{}, err
	}
	if m.Size > maxBeside {
		return mcap.Part{}, fmt.Errorf("%s: %w: a message of channel %s at byte %d has %d bytes, at most %d are copied",
			r.Path, ErrFormat, r.Channels[m.Channel].Topic, m.Offset, m.Size, maxBeside)
	}
	data, err := r.Read(m)
	return mcap.Part{Message: m.Message, Data: data}, err
}

// End writes the index. It must be the last call.
func (s *Slice) End() error {
	_, err := s.out.Write(s.w.End(nil))
	return err
}
