// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// errUnfinished means that a file does not end as a finished one does: with a summary, a footer and the magic.
var errUnfinished = errors.New("mcap: the file has no end")

const footerSize = recordHead + 8 + 8 + 4

// An index is the summary at the end of a file while it is being read. It must name each record only once, and the
// named records together must not be larger than the file. Without these checks, a small file could name one large
// record many times and have it read each time.
type index struct {
	f     *File
	named map[int64]bool // by offset
	bytes int64          // total size of the named records
}

// footer returns the footer of a file of size bytes with the magic behind it, and the footer's offset. The error is
// errUnfinished if the file has no end.
func footer(r io.ReaderAt, size int64) (b []byte, at int64, err error) {
	b = make([]byte, footerSize+len(Magic))
	if at = size - int64(len(b)); at < int64(len(Magic)) {
		return nil, 0, errUnfinished
	}
	if _, err := r.ReadAt(b, at); err != nil {
		return nil, 0, err
	}
	if string(b[footerSize:]) != Magic || Opcode(b[0]) != OpFooter || le.Uint64(b[1:]) != footerSize-recordHead {
		return nil, 0, errUnfinished
	}
	return b, at, nil
}

// index reads the summary at the end of the file, and the header at its beginning.
func (f *File) index(ctx context.Context) error {
	b, at, err := footer(f.r, f.size)
	if err != nil {
		return err
	}
	start, crc := le.Uint64(b[recordHead:]), le.Uint32(b[recordHead+16:])
	if start == 0 {
		return errUnfinished
	}
	if start > uint64(at) || uint64(at)-start > maxRecord {
		return fmt.Errorf("%w: its index begins at byte %d and should end at byte %d", ErrDamaged, start, at)
	}
	summary := make([]byte, at-int64(start), at-int64(start)+footerSize)
	if _, err := f.r.ReadAt(summary, int64(start)); err != nil {
		return err
	}
	if got := crc32.ChecksumIEEE(append(summary, b[:recordHead+16]...)); crc != 0 && got != crc {
		return fmt.Errorf("%w: its index has CRC %#x and should have %#x", ErrDamaged, got, crc)
	}
	x := index{f: f, named: map[int64]bool{}}
	for d := (&decoder{b: summary}); len(d.b) > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		op, content := d.record()
		if d.err != nil {
			return fmt.Errorf("%w: its index ends within a record", ErrDamaged)
		}
		if err := x.addRecord(op, content); err != nil {
			return err
		}
	}
	h, err := f.head(int64(len(Magic)))
	if err != nil {
		return err
	}
	return f.addRecord(h, int64(len(Magic)))
}

// addRecord processes a record of the summary.
func (x *index) addRecord(op Opcode, b []byte) error {
	d := &decoder{b: b}
	switch op {
	case OpSchema, OpChannel:
		return x.f.defined(op, d)
	case OpStatistics:
		return x.f.statistics(d)
	case OpChunkIndex:
		c := Chunk{First: d.uint64(), Last: d.uint64()}
		at, length := d.uint64(), d.uint64()
		if d.err != nil || at > uint64(x.f.size) || length > uint64(x.f.size)-at || length < recordHead {
			return fmt.Errorf("%w: its index has a chunk of %d bytes at byte %d of %d", ErrDamaged, length, at, x.f.size)
		}
		c.Offset, c.Length = int64(at), int64(length)
		if err := x.name(c.Offset, c.Length); err != nil {
			return err
		}
		return x.f.addChunk(c) // its header is read when needed
	case OpAttachmentIndex:
		return x.record(d.uint64(), OpAttachment)
	case OpMetadataIndex:
		return x.record(d.uint64(), OpMetadata)
	}
	return nil
}

// statistics processes the numbers of messages.
func (f *File) statistics(d *decoder) error {
	d.bytes(8 + 2 + 4*4 + 8 + 8) // totals
	counts := &decoder{b: d.bytes(int64(d.uint32())), err: d.err}
	f.Counts = map[uint16]uint64{}
	for len(counts.b) > 0 && counts.err == nil {
		id := counts.uint16()
		f.Counts[id] = counts.uint64()
	}
	if counts.err != nil {
		return fmt.Errorf("%w: its statistics end too early", ErrDamaged)
	}
	return nil
}

// record processes the record of the given kind at byte at, which the summary names.
func (x *index) record(at uint64, kind Opcode) error {
	wrong := fmt.Errorf("%w: its index has an attachment or metadata at byte %d of %d, where there is none", ErrDamaged, at, x.f.size)
	if at > uint64(x.f.size) {
		return wrong
	}
	h, err := x.f.head(int64(at))
	if err != nil {
		return err
	}
	if h.op != kind {
		return wrong
	}
	if err := x.name(int64(at), recordHead+h.length); err != nil {
		return err
	}
	return x.f.addRecord(h, int64(at))
}

// name counts a record that the summary names. It returns an error if the summary has named it before, or has now named
// more bytes than the file has.
func (x *index) name(at, length int64) error {
	if x.bytes += length; x.named[at] || x.bytes > x.f.size {
		return fmt.Errorf("%w: its index names the record at byte %d twice, or more bytes than the file has", ErrDamaged, at)
	}
	x.named[at] = true
	return nil
}
