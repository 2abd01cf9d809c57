// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
)

// ErrNotOwn means that a file is not laid out like the files of a Writer, so no Writer can continue it.
var ErrNotOwn = errors.New("mcap: the file is not laid out as tegracast writes it")

// HasEnd reports whether a file of size bytes ends like a finished file. It does not read the index. The error comes
// from r.
func HasEnd(r io.ReaderAt, size int64) (bool, error) {
	_, _, err := footer(r, size)
	if errors.Is(err, errUnfinished) {
		return false, nil
	}
	return err == nil, err
}

// A Gap is a damaged place before the end of a file.
type Gap struct {
	From, To int64 // offsets of its first byte and of the chunk behind it; To is 0 if there is none
	Before   int   // number of chunks before it
}

// Gaps returns the damaged places of an unfinished file, other than an incomplete record or zeros at the end.
func (f *File) Gaps() []Gap { return f.gaps }

// Resume returns a Writer that continues an unfinished file at End, with the index of all its chunks except those for
// which leave is true and those whose messages cannot be read; left is the number of both. b contains the message
// indexes that the file lacks, and must be written at End first. Errors wrap ErrNotOwn, or come from ctx or the file.
func (f *File) Resume(ctx context.Context, leave func(chunk int) bool) (w *Writer, b []byte, left int, err error) {
	w = &Writer{Offset: uint64(f.End), metadata: f.metadata}
	for _, a := range f.Attachments {
		w.attached = append(w.attached, attachmentIndex{a.Attachment, uint64(a.begin - recordHead), uint64(a.length), uint64(a.Size)})
	}
	for i := range f.Chunks {
		c, err := f.chunk(i)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, nil, 0, err
		}
		if c.Compression != "" || c.records == c.Offset {
			return nil, nil, 0, ErrNotOwn
		}
		list, err := f.Messages(i)
		if err != nil && !errors.Is(err, ErrDamaged) {
			return nil, nil, 0, err
		}
		if err != nil || leave(i) {
			left++
			continue
		}
		if b, err = f.resumeChunk(w, b, c, list); err != nil {
			return nil, nil, 0, err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.Schemas)) {
		w.schemas = append(w.schemas, f.Schemas[id])
	}
	for _, id := range slices.Sorted(maps.Keys(f.Channels)) {
		w.channels = append(w.channels, f.Channels[id])
	}
	return w, b, left, nil
}

// resumeChunk adds a chunk with the given messages to the index. If the file lacks any of the chunk's message indexes,
// it appends all of them to b.
func (f *File) resumeChunk(w *Writer, b []byte, c *Chunk, list []MessageInfo) ([]byte, error) {
	entry := chunkIndex{first: c.First, last: c.Last, at: uint64(c.Offset), length: uint64(c.Length), size: c.Size}
	index := map[uint16][]messageAt{}
	for _, m := range list {
		index[m.Channel] = append(index[m.Channel], messageAt{m.Log, uint64(m.Offset - messageHead - c.records)})
	}
	there, err := f.messageIndexes(&entry, c.Offset+c.Length)
	if err != nil {
		return b, err
	}
	missing := len(there) != len(index)
	for id, messages := range index {
		missing = missing || there[id] != uint64(len(messages))
	}
	if missing {
		from := len(b)
		entry.indexes = nil
		b = entry.appendIndexes(b, w.Offset, index)
		w.Offset += uint64(len(b) - from)
	}
	w.chunks = append(w.chunks, entry)
	return b, nil
}

// messageIndexes adds the message indexes from byte at on to the chunk's entry, and returns the numbers of their
// messages by channel.
func (f *File) messageIndexes(entry *chunkIndex, at int64) (counts map[uint16]uint64, err error) {
	counts = map[uint16]uint64{}
	from := at
	for at < f.End {
		h, err := f.head(at)
		if err != nil || h.op != OpMessageIndex || h.length < 6 || at+recordHead+h.length > f.End {
			break // what follows is not the chunk's
		}
		var b [6]byte
		if _, err := f.r.ReadAt(b[:], at+recordHead); err != nil {
			return nil, err
		}
		m := messageIndex{channel: le.Uint16(b[:]), at: uint64(at), count: uint64(le.Uint32(b[2:]) / 16)}
		if int64(le.Uint32(b[2:])) != h.length-6 || m.count == 0 {
			break
		}
		counts[m.channel] += m.count
		entry.indexes = append(entry.indexes, m)
		at += recordHead + h.length
	}
	entry.indexLength = uint64(at - from)
	return counts, nil
}
