// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// Errors of a file. They come wrapped with what and where.
var (
	ErrNotMCAP    = errors.New("mcap: not an MCAP file")
	ErrDamaged    = errors.New("mcap: the file is damaged")
	ErrCompressed = errors.New("mcap: the chunk is compressed, which is not supported")
)

// A File is one that is being read. Files of others are read, too, if their chunks are not compressed.
type File struct {
	Profile, Library string
	Schemas          map[uint16]Schema
	Channels         map[uint16]Channel
	Chunks           []Chunk // in the order of the file; messages outside of chunks, of a file that has none, are in ones of their own
	Attachments      []AttachmentInfo
	Metadata         map[string]map[string]string
	// Finished says that the file has its end and its index. One that has not was read from the beginning up to the last whole
	// record, which ends at End.
	Finished bool
	End      int64
	// Trouble is what was wrong before or behind End, or with the index; nil of a file that just ends.
	Trouble error

	r       io.ReaderAt
	size    int64
	skipped int // places that are damaged, of a file without an index
}

// A Chunk is where messages are.
type Chunk struct {
	Offset, Length int64  // of the record, in the file
	First, Last    uint64 // log times of its messages, in ns
	Compression    string
	Size           uint64 // of its records without compression
	CRC            uint32 // CRC-32 of these; 0: there is none
	records        int64  // offset of its records in the file
}

// AttachmentInfo is where an attachment is.
type AttachmentInfo struct {
	Attachment // without its data
	Offset     int64
	Size       int64
	crcAt      int64
	begin      int64 // of what the CRC covers
}

// Bounds of what is held in memory of a file.
const (
	maxRecord = 64 << 20 // of a record that is neither a chunk nor an attachment
	maxItems  = 1 << 24  // chunks of a file
	// maxMessage is the longest message that Read reads, in bytes: a frame of 256 million samples.
	maxMessage = 512 << 20
	maxLoose   = 4 << 20 // bytes of messages in a row outside of chunks that are taken for one
	// maxMessages is how many messages a chunk has.
	maxMessages = 1 << 20
)

// Open reads what a file of size bytes is: by its index, or, where there is none or it is wrong, from the beginning. An error
// wraps ErrNotMCAP or is r's.
func Open(r io.ReaderAt, size int64) (*File, error) {
	f := &File{r: r, size: size}
	magic := make([]byte, len(Magic))
	n, err := r.ReadAt(magic, 0)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case n == 0:
		return nil, fmt.Errorf("%w: it is empty: give a recording", ErrNotMCAP)
	case string(magic) != Magic:
		return nil, fmt.Errorf("%w: it begins with %q: give a recording", ErrNotMCAP, magic[:n])
	}
	f.forget()
	err = f.index()
	if err == nil && len(f.Chunks) > 0 {
		f.Finished, f.End = true, size
		return f, nil
	}
	f.forget()
	if err != nil && !errors.Is(err, errUnfinished) {
		f.Trouble = err
	}
	if scanned := f.scan(); scanned != nil {
		return f, scanned
	}
	if err == nil && f.Trouble == nil { // it has an index without chunks, or no index of them
		f.Finished, f.End = true, size
	}
	return f, nil
}

func (f *File) forget() {
	f.Schemas, f.Channels, f.Metadata = map[uint16]Schema{}, map[uint16]Channel{}, map[string]map[string]string{}
	f.Chunks, f.Attachments = nil, nil
}

// errUnfinished says that a file does not end as a finished one does.
var errUnfinished = errors.New("mcap: the file has no end")

const footerSize = recordHead + 8 + 8 + 4

// index reads the summary at the end of the file.
func (f *File) index() error {
	b := make([]byte, footerSize+len(Magic))
	at := f.size - int64(len(b))
	if at < int64(len(Magic)) {
		return errUnfinished
	}
	if _, err := f.r.ReadAt(b, at); err != nil {
		return err
	}
	if string(b[footerSize:]) != Magic || Opcode(b[0]) != OpFooter || le.Uint64(b[1:]) != footerSize-recordHead {
		return errUnfinished
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
	for d := (&decoder{b: summary}); len(d.b) > 0; {
		op, content := d.record()
		if d.err != nil {
			return fmt.Errorf("%w: its index ends within a record", ErrDamaged)
		}
		if err := f.summarized(op, content); err != nil {
			return err
		}
	}
	return f.takeAt(int64(len(Magic)))
}

// takeAt reads the record at byte at.
func (f *File) takeAt(at int64) error {
	h, err := f.head(at)
	if err != nil {
		return err
	}
	return f.take(h, at)
}

// summarized takes a record of the summary.
func (f *File) summarized(op Opcode, b []byte) error {
	d := &decoder{b: b}
	switch op {
	case OpSchema, OpChannel:
		return f.defined(op, d)
	case OpChunkIndex:
		c := Chunk{First: d.uint64(), Last: d.uint64()}
		at, length := d.uint64(), d.uint64()
		if d.err != nil || at > uint64(f.size) || length > uint64(f.size)-at {
			return fmt.Errorf("%w: its index has a chunk at bytes %d to %d of %d", ErrDamaged, at, at+length, f.size)
		}
		c.Offset, c.Length = int64(at), int64(length)
		f.Chunks = append(f.Chunks, c) // its head is read when it is needed
	case OpAttachmentIndex, OpMetadataIndex:
		at := d.uint64()
		if d.err != nil || at > uint64(f.size) {
			return fmt.Errorf("%w: its index has an attachment or metadata at byte %d of %d", ErrDamaged, at, f.size)
		}
		return f.takeAt(int64(at))
	}
	return nil
}

// defined takes a schema or a channel.
func (f *File) defined(op Opcode, d *decoder) error {
	if op == OpSchema {
		s := Schema{ID: d.uint16(), Name: d.text(), Encoding: d.text()}
		s.Data = append([]byte(nil), d.bytes(int64(d.uint32()))...)
		f.Schemas[s.ID] = s
	} else {
		c := Channel{ID: d.uint16(), Schema: d.uint16(), Topic: d.text(), Encoding: d.text(), Metadata: d.texts()}
		f.Channels[c.ID] = c
	}
	if d.err != nil {
		return fmt.Errorf("%w: a schema or a channel ends too early", ErrDamaged)
	}
	return nil
}

// recordAt is a record's head.
type recordAt struct {
	op     Opcode
	length int64 // of its contents
}

// head reads the head of the record at byte at.
func (f *File) head(at int64) (recordAt, error) {
	var b [recordHead]byte
	if f.size-at < recordHead {
		return recordAt{}, io.ErrUnexpectedEOF
	}
	if _, err := f.r.ReadAt(b[:], at); err != nil {
		return recordAt{}, err
	}
	n := le.Uint64(b[1:])
	if n > uint64(f.size-at-recordHead) {
		return recordAt{}, io.ErrUnexpectedEOF
	}
	if b[0] == 0 {
		return recordAt{}, fmt.Errorf("%w: there is no record at byte %d", ErrDamaged, at)
	}
	return recordAt{Opcode(b[0]), int64(n)}, nil
}

// loose takes a message that lies outside of chunks, which some writers do: those in a row are a chunk without a head and a CRC.
func (f *File) loose(h recordAt, at int64) error {
	m, err := f.message(h, at)
	if err != nil {
		return err
	}
	if n := len(f.Chunks); n > 0 && f.Chunks[n-1].follows(at) {
		c := &f.Chunks[n-1]
		c.Length, c.Size = c.Length+recordHead+h.length, c.Size+uint64(recordHead+h.length)
		c.First, c.Last = min(c.First, m.Log), max(c.Last, m.Log)
		return nil
	}
	size := recordHead + h.length
	return f.add(Chunk{Offset: at, Length: size, First: m.Log, Last: m.Log, Size: uint64(size), records: at})
}

// follows says whether a message at byte at goes on with messages outside of chunks.
func (c *Chunk) follows(at int64) bool {
	return c.records == c.Offset && c.Offset+c.Length == at && c.Length < maxLoose
}

// add takes a chunk.
func (f *File) add(c Chunk) error {
	if len(f.Chunks) >= maxItems {
		return fmt.Errorf("%w: it has more than %d chunks", ErrDamaged, maxItems)
	}
	f.Chunks = append(f.Chunks, c)
	return nil
}

// take reads a record of the data section.
func (f *File) take(h recordAt, at int64) error {
	if h.op == OpChunk {
		c, err := f.chunkAt(at, h.length)
		if err != nil {
			return err
		}
		return f.add(c)
	}
	switch h.op {
	case OpAttachment:
		return f.attachment(h, at)
	case OpMessage:
		return f.loose(h, at)
	}
	if h.op != OpHeader && h.op != OpSchema && h.op != OpChannel && h.op != OpMetadata {
		return nil
	}
	if h.length > maxRecord {
		return fmt.Errorf("%w: a record of %d bytes", ErrDamaged, h.length)
	}
	b := make([]byte, h.length)
	if _, err := f.r.ReadAt(b, at+recordHead); err != nil {
		return err
	}
	d := &decoder{b: b}
	switch h.op {
	case OpHeader:
		f.Profile, f.Library = d.text(), d.text()
	case OpMetadata:
		name := d.text()
		f.Metadata[name] = d.texts()
	default:
		return f.defined(h.op, d)
	}
	if d.err != nil {
		return fmt.Errorf("%w: a record ends too early", ErrDamaged)
	}
	return nil
}

// chunkAt reads a chunk's head.
func (f *File) chunkAt(at, length int64) (Chunk, error) {
	b := make([]byte, min(length, 8+8+8+4+4+256+8))
	if _, err := f.r.ReadAt(b, at+recordHead); err != nil {
		return Chunk{}, err
	}
	d := &decoder{b: b}
	c := Chunk{Offset: at, Length: recordHead + length, First: d.uint64(), Last: d.uint64(), Size: d.uint64(), CRC: d.uint32(), Compression: d.text()}
	n := d.uint64()
	c.records = at + recordHead + int64(len(b)-len(d.b))
	if d.err != nil || n != uint64(at+recordHead+length-c.records) || c.Compression == "" && c.Size != n {
		return c, fmt.Errorf("%w: a chunk's lengths do not agree", ErrDamaged)
	}
	return c, nil
}

func (f *File) attachment(h recordAt, at int64) error {
	b := make([]byte, min(h.length, 8+8+4+4+8+maxName))
	if _, err := f.r.ReadAt(b, at+recordHead); err != nil {
		return err
	}
	d := &decoder{b: b}
	a := AttachmentInfo{begin: at + recordHead}
	a.Log, a.Created, a.Name, a.Media = d.uint64(), d.uint64(), d.text(), d.text()
	n := d.uint64()
	a.Offset = at + recordHead + int64(len(b)-len(d.b))
	if d.err != nil || n > math.MaxInt64 || int64(n) > h.length-(a.Offset-a.begin)-4 { // what is behind the CRC is of later versions
		return fmt.Errorf("%w: an attachment's lengths do not agree", ErrDamaged)
	}
	a.Size, a.crcAt = int64(n), a.Offset+int64(n)
	f.Attachments = append(f.Attachments, a)
	return nil
}

// maxName is how long name and media type of an attachment may be together.
const maxName = 64 << 10
