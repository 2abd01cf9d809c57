// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// A Slice writes frames of recordings to a recording of its own, bit by bit, with all that stands beside them: notes, attachments
// and metadata.
type Slice struct {
	out      io.Writer
	w        *mcap.Writer
	channels map[uint16]mcap.Channel
}

// NewSlice begins a recording with what first's file has besides frames.
func NewSlice(out io.Writer, first *Frame) (*Slice, error) {
	r := first.reader
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
	_, err = out.Write(b)
	return &Slice{out: out, w: w, channels: r.Channels}, err
}

// maxBeside is how many bytes a message beside a frame may have.
const maxBeside = 1 << 20

// Add adds a frame, with the pixels that were read of it. Errors wrap ErrFormat or mcap.ErrDamaged, or are of one of the files.
func (s *Slice) Add(f *Frame, pixels []byte) error {
	r := f.reader
	list, err := r.Messages(f.chunk)
	if err != nil {
		return err
	}
	var large mcap.Message
	var prefix []byte
	var small []mcap.Part
	for _, m := range list {
		if c, is := s.channels[m.Channel]; !is || c.Topic != r.Channels[m.Channel].Topic {
			return fmt.Errorf("%s: %w: channel %d, %s, is not that of the first file: export it by itself",
				r.Path, ErrFormat, m.Channel, r.Channels[m.Channel].Topic)
		}
		image := m.Offset+int64(f.Image.Pixels) == f.pixels
		if image {
			m.Size = int64(f.Image.Pixels)
		}
		if m.Size > maxBeside {
			return fmt.Errorf("%s: %w: a message beside frame %d has %d bytes", r.Path, mcap.ErrDamaged, f.Note.Frame, m.Size)
		}
		data, err := r.Read(m)
		switch {
		case err != nil:
			return err
		case image:
			large, prefix = m.Message, data
		default:
			small = append(small, mcap.Part{Message: m.Message, Data: data})
		}
	}
	head, tail, whole, err := s.w.Frame(nil, nil, page, large, prefix, pixels, small)
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

// End writes the index.
func (s *Slice) End() error {
	_, err := s.out.Write(s.w.End(nil))
	return err
}
