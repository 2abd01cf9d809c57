// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tegracast/tegracast/pipeline/crc"
)

// MessageInfo is the position of a message's data.
type MessageInfo struct {
	Message
	Offset, Size int64 // in the file or, if the chunk is compressed, in its records
	packed       int   // index of the compressed chunk in File.Chunks, plus 1; 0 if the chunk is not compressed
}

// Compressed reports whether the message is in a compressed chunk.
func (m *MessageInfo) Compressed() bool { return m.packed > 0 }

// Messages returns the messages of chunk i, in order, and adds the schemas and channels in the chunk to f. It reads no
// message data, except those of compressed chunks. Errors wrap ErrDamaged or ErrCompressed, or are the file's.
func (f *File) Messages(i int) ([]MessageInfo, error) {
	in, at, end, err := f.contents(i)
	if err != nil {
		return nil, err
	}
	packed := 0
	if in != f {
		packed = i + 1
	}
	var list []MessageInfo
	for at < end {
		h, err := in.head(at)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, ErrDamaged) {
			return nil, err
		}
		if err != nil || at+recordHead+h.length > end {
			return list, fmt.Errorf("%w: chunk %d ends within a record, at byte %d (%v)", ErrDamaged, i, at, err)
		}
		switch h.op {
		case OpMessage:
			m, err := in.message(h, at)
			if err != nil {
				return list, err
			}
			m.packed = packed
			if list = append(list, m); len(list) > maxMessages {
				return nil, fmt.Errorf("%w: chunk %d has more than %d messages", ErrDamaged, i, maxMessages)
			}
		case OpSchema, OpChannel:
			if err := in.addRecord(h, at); err != nil {
				return list, err
			}
			f.kept = in.kept
		}
		at += recordHead + h.length
	}
	return list, nil
}

func (f *File) message(h recordAt, at int64) (MessageInfo, error) {
	var b [messageHead - recordHead]byte
	if h.length < int64(len(b)) {
		return MessageInfo{}, fmt.Errorf("%w: the message at byte %d has %d bytes", ErrDamaged, at, h.length)
	}
	if _, err := f.r.ReadAt(b[:], at+recordHead); err != nil {
		return MessageInfo{}, err
	}
	d := &decoder{b: b[:]}
	m := Message{Channel: d.uint16(), Sequence: d.uint32(), Log: d.uint64(), Publish: d.uint64()}
	return MessageInfo{Message: m, Offset: at + messageHead, Size: h.length - int64(len(b))}, nil
}

// chunk returns chunk i after reading its header.
func (f *File) chunk(i int) (*Chunk, error) {
	c := &f.Chunks[i]
	if c.records == 0 { // known only from the index
		h, err := f.head(c.Offset)
		if err != nil || h.op != OpChunk || recordHead+h.length != c.Length {
			return nil, fmt.Errorf("%w: the index has chunk %d at byte %d, where there is none (%v)", ErrDamaged, i, c.Offset, err)
		}
		read, err := f.chunkAt(c.Offset, h.length)
		if err != nil {
			return nil, err
		}
		*c = read
	}
	return c, nil
}

// VerifyChunk checks the CRC of chunk i, and reports whether the chunk has one. Errors wrap ErrDamaged, or are those of
// Messages.
func (f *File) VerifyChunk(i int) (checked bool, err error) { return f.verify(i, nil, 0, nil) }

// VerifyRead is VerifyChunk for a caller that has already read a part of the chunk: read contains the file's bytes from
// byte at on.
func (f *File) VerifyRead(i int, read []byte, at int64) (checked bool, err error) {
	return f.verify(i, read, at, nil)
}

// VerifySpan is VerifyChunk for a caller that needs the CRC-32C of a part of the chunk: each piece of the file is read
// once, and summed twice while it is in the cache. Of a chunk that is compressed or has no CRC, s sees nothing.
func (f *File) VerifySpan(i int, s *Span) (checked bool, err error) { return f.verify(i, nil, 0, s) }

// A Span is a part of a file.
type Span struct {
	Offset, Size int64
	Seen         int64 // number of its bytes of which Sum is the CRC-32C
	Sum          uint32
}

// sums is an io.Writer that computes the CRC-32 of the file's bytes from at on, and the CRC-32C of those in span, which
// may be nil.
type sums struct {
	crc  uint32
	at   int64
	span *Span
}

func (s *sums) Write(b []byte) (int, error) {
	for piece := range slices.Chunk(b, sumPiece) {
		s.crc = crc.IEEE(s.crc, piece)
		size := int64(len(piece))
		if p := s.span; p != nil {
			from, to := max(p.Offset-s.at, 0), min(p.Offset+p.Size-s.at, size)
			if from < to {
				p.Sum, p.Seen = crc.Castagnoli(p.Sum, piece[from:to]), p.Seen+to-from
			}
		}
		s.at += size
	}
	return len(b), nil
}

// sumPiece is the number of bytes that are summed at a time. They stay in the first cache.
const sumPiece = 8 << 10

func (f *File) verify(i int, read []byte, at int64, span *Span) (checked bool, err error) {
	c, err := f.chunk(i)
	if err == nil && c.Compression != "" {
		_, err = f.unpack(i, c) // which compares the CRC
		return c.CRC != 0, err
	}
	if err != nil || c.CRC == 0 {
		return false, err
	}
	if err := f.compare(c.records, int64(c.Size), c.CRC, read, at, span); err != nil {
		return true, fmt.Errorf("chunk %d, of times %d to %d: %w", i, c.First, c.Last, err)
	}
	return true, nil
}

// compare checks the CRC of size bytes at byte at. read contains those from byte readAt on, and may be empty. span may be
// nil.
func (f *File) compare(at, size int64, want uint32, read []byte, readAt int64, span *Span) error {
	sum := &sums{at: at, span: span}
	if len(read) == 0 {
		readAt = at
	}
	behind := readAt + int64(len(read))
	if readAt < at || behind > at+size {
		return fmt.Errorf("%w: bytes %d to %d are not within %d bytes at byte %d", ErrDamaged, readAt, behind, size, at)
	}
	buffer := make([]byte, min(32<<10, max(readAt-at, at+size-behind)))
	add := func(at, size int64) error {
		_, err := io.CopyBuffer(sum, io.NewSectionReader(f.r, at, size), buffer)
		return err
	}
	if readAt > at {
		if err := add(at, readAt-at); err != nil {
			return err
		}
	}
	_, _ = sum.Write(read) // never fails
	if at+size > behind {
		if err := add(behind, at+size-behind); err != nil {
			return err
		}
	}
	if got := sum.crc; got != want {
		return fmt.Errorf("%w: %d bytes at byte %d have CRC %#x and should have %#x", ErrDamaged, size, at, got, want)
	}
	return nil
}

// ReadAttachment reads attachment i, and checks its CRC, if it has one.
func (f *File) ReadAttachment(i int) ([]byte, error) {
	a := &f.Attachments[i]
	if a.Size > maxRecord {
		return nil, fmt.Errorf("%w: attachment %q has %d bytes", ErrDamaged, a.Name, a.Size)
	}
	b := make([]byte, a.Size+4)
	if _, err := f.r.ReadAt(b, a.Offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if want := le.Uint32(b[a.Size:]); want != 0 {
		if err := f.compare(a.begin, a.crcAt-a.begin, want, nil, 0, nil); err != nil {
			return nil, fmt.Errorf("attachment %q: %w", a.Name, err)
		}
	}
	return b[:a.Size], nil
}

// Read reads a message's data. Errors wrap ErrDamaged, also if the data are longer than MaxMessage, or ErrCompressed,
// or are the file's.
func (f *File) Read(m MessageInfo) ([]byte, error) {
	if m.Size > MaxMessage {
		return nil, fmt.Errorf("%w: the message at byte %d has %d bytes", ErrDamaged, m.Offset, m.Size)
	}
	b := make([]byte, m.Size)
	return b, f.ReadInto(b, m, 0)
}

// ReadInto fills b with a message's data from byte at of the message on. Errors wrap ErrDamaged or ErrCompressed, or are
// the file's.
func (f *File) ReadInto(b []byte, m MessageInfo, at int64) error {
	if at < 0 || at > m.Size || int64(len(b)) > m.Size-at {
		return fmt.Errorf("%w: bytes %d to %d of a message of %d bytes", ErrDamaged, at, at+int64(len(b)), m.Size)
	}
	if m.packed == 0 {
		n, err := f.r.ReadAt(b, m.Offset+at)
		if n == len(b) {
			err = nil
		}
		return err
	}
	records, err := f.unpack(m.packed-1, &f.Chunks[m.packed-1])
	if err == nil {
		copy(b, records[m.Offset+at:])
	}
	return err
}
