// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
)

// Errors about a file. They are returned wrapped, with what is wrong and, where it is known, the place.
var (
	ErrNotMCAP    = errors.New("mcap: not an MCAP file")
	ErrDamaged    = errors.New("mcap: the file is damaged")
	ErrCompressed = errors.New("mcap: the chunk is compressed in a way that is not supported")
)

// A File is a file being read, by one goroutine. Files of other writers can be read too, with chunks of any number of
// messages, not compressed or with lz4 or zstd.
type File struct {
	Profile, Library string
	Schemas          map[uint16]Schema
	Channels         map[uint16]Channel
	// Chunks are in the order of the index. If no index lists any, they are in the order of the file, and consecutive
	// messages outside of chunks are grouped into chunks.
	Chunks      []Chunk
	Attachments []AttachmentInfo
	Metadata    map[string]map[string]string
	// Counts has the number of messages of each channel, by its ID, if the index has it; otherwise it is nil.
	Counts map[uint16]uint64
	// Finished is true if the file has its end and its index; End is then the file's size. A file without them is read
	// from the beginning up to the last complete record, which ends at End.
	Finished bool
	End      int64
	// Trouble describes errors before or after End, or in the index. It is nil for a file that just ends.
	Trouble error

	r        io.ReaderAt
	size     int64
	gaps     []Gap // damaged places found so far, in a file without an index
	metadata []metadataIndex
	unpacked unpacked
	kept     int // approximate bytes in memory of schemas, channels, metadata and names of attachments
}

// A Chunk is the position of a group of messages.
type Chunk struct {
	Offset, Length int64  // of the chunk's record in the file
	First, Last    uint64 // lowest and highest log time of its messages, in ns
	Compression    string
	Size           uint64 // uncompressed size of its records
	CRC            uint32 // CRC-32 of its records; 0 if there is none
	records        int64  // offset of its records in the file
}

// AttachmentInfo describes an attachment and its position in the file.
type AttachmentInfo struct {
	Attachment // without its data
	Offset     int64
	Size       int64
	crcAt      int64
	length     int64 // of its record
	begin      int64 // start of the bytes covered by the CRC
}

// Limits of the memory used for a file.
const (
	// maxRecord is the maximum number of bytes of the summary, of an attachment that is read, and of a record that is
	// not a chunk, a message or an attachment.
	maxRecord = 64 << 20
	maxKept   = 64 << 20 // approximate bytes of schemas, channels, metadata and names of attachments that are kept
	maxItems  = 1 << 24  // chunks of a file
	// MaxMessage is the maximum size in bytes of the messages that Read reads: a frame of 256 Mi samples of 16 bits.
	MaxMessage = 512 << 20
	maxLoose   = 4 << 20 // bytes of consecutive messages outside of chunks that are treated as one chunk
	// maxMessages limits the number of messages of a chunk.
	maxMessages = 1 << 20
	maxTexts    = 1 << 16 // texts in one map of metadata
)

// Open reads the structure of a file of size bytes from its index or, if that is missing, invalid or lists no chunks,
// from the beginning. An error wraps ErrNotMCAP, or comes from r or ctx.
func Open(ctx context.Context, r io.ReaderAt, size int64) (*File, error) {
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
	err = f.index(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err == nil && len(f.Chunks) > 0 {
		f.Finished, f.End = true, size
		return f, nil
	}
	f.forget()
	if err != nil && !errors.Is(err, errUnfinished) {
		f.Trouble = err
	}
	if scanned := f.scan(ctx); scanned != nil {
		return f, scanned
	}
	if err == nil && f.Trouble == nil { // it has an index that lists no chunks
		f.Finished, f.End = true, size
	}
	return f, nil
}

func (f *File) forget() {
	f.Schemas, f.Channels, f.Metadata = map[uint16]Schema{}, map[uint16]Channel{}, map[string]map[string]string{}
	f.Chunks, f.Attachments, f.Counts, f.metadata, f.kept = nil, nil, nil, nil, 0
}

// entry is the approximate memory of an entry of a map or a list in bytes, besides its texts.
const entry = 256

func (s Schema) size() int { return entry + len(s.Name) + len(s.Encoding) + len(s.Data) }

func (c Channel) size() int { return len(c.Topic) + len(c.Encoding) + sizeOf("", c.Metadata) }

// sizeOf returns the approximate memory of a name and a map of texts, in bytes.
func sizeOf(name string, texts map[string]string) int {
	n := entry + len(name)
	for k, v := range texts {
		n += entry + len(k) + len(v)
	}
	return n
}

// put keeps v in m. A file may have holes, which cost its maker nothing, so what is kept is counted.
func put[K comparable, V any](f *File, m map[K]V, k K, v V, size func(V) int) error {
	n := size(v)
	if was, again := m[k]; again {
		n -= size(was)
	}
	if err := f.keep(n); err != nil {
		return err
	}
	m[k] = v
	return nil
}

// metadataEntry is the approximate memory of a metadata record's index entry in bytes, besides its name.
const metadataEntry = 32

// keep counts n more bytes that are kept in memory. It returns an error if too many are.
func (f *File) keep(n int) error {
	if f.kept+n > maxKept {
		return fmt.Errorf("%w: its schemas, channels, metadata and attachments' names have more than %d bytes", ErrDamaged, maxKept)
	}
	f.kept += n
	return nil
}

// defined processes a schema or a channel.
func (f *File) defined(op Opcode, d *decoder) error {
	if op == OpSchema {
		s := Schema{ID: d.uint16(), Name: d.text(), Encoding: d.text()}
		s.Data = append([]byte(nil), d.bytes(int64(d.uint32()))...)
		if d.err == nil {
			return put(f, f.Schemas, s.ID, s, Schema.size)
		}
	} else {
		c := Channel{ID: d.uint16(), Schema: d.uint16(), Topic: d.text(), Encoding: d.text(), Metadata: d.texts()}
		if d.err == nil {
			return put(f, f.Channels, c.ID, c, Channel.size)
		}
	}
	return fmt.Errorf("%w: a schema or a channel ends too early", ErrDamaged)
}

// recordAt is the header of a record.
type recordAt struct {
	op     Opcode
	length int64 // length of its contents
}

// head reads the header of the record at byte at. The error is io.ErrUnexpectedEOF if the file ends within the record.
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

// loose processes a message outside of chunks, which some writers produce. Consecutive ones are treated as a chunk
// without a header or a CRC.
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
	return f.addChunk(Chunk{Offset: at, Length: size, First: m.Log, Last: m.Log, Size: uint64(size), records: at})
}

// follows reports whether a message at byte at extends the chunk c, which must consist of messages outside of chunks
// and must not have reached maxLoose.
func (c *Chunk) follows(at int64) bool {
	return c.records == c.Offset && c.Offset+c.Length == at && c.Length < maxLoose
}

func (f *File) addChunk(c Chunk) error {
	if len(f.Chunks) >= maxItems {
		return fmt.Errorf("%w: it has more than %d chunks", ErrDamaged, maxItems)
	}
	f.Chunks = append(f.Chunks, c)
	return nil
}

// addRecord processes a record of the data section.
func (f *File) addRecord(h recordAt, at int64) error {
	if h.op == OpChunk {
		c, err := f.chunkAt(at, h.length)
		if err != nil {
			return err
		}
		return f.addChunk(c)
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
		name, texts := d.text(), d.texts()
		if d.err == nil {
			if err := f.keep(metadataEntry + len(name)); err != nil {
				return err
			}
			f.metadata = append(f.metadata, metadataIndex{name, uint64(at), uint64(recordHead + h.length)})
			return put(f, f.Metadata, name, texts, func(m map[string]string) int { return sizeOf(name, m) })
		}
	default:
		return f.defined(h.op, d)
	}
	if d.err != nil {
		return fmt.Errorf("%w: a record ends too early", ErrDamaged)
	}
	return nil
}

// chunkAt reads the header of the chunk at byte at, whose contents have length bytes.
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
	a := AttachmentInfo{begin: at + recordHead, length: recordHead + h.length}
	a.Log, a.Created, a.Name, a.Media = d.uint64(), d.uint64(), d.text(), d.text()
	n := d.uint64()
	a.Offset = at + recordHead + int64(len(b)-len(d.b))
	if d.err != nil || n > math.MaxInt64 || int64(n) > h.length-(a.Offset-a.begin)-4 { // anything after the CRC belongs to later versions
		return fmt.Errorf("%w: an attachment's lengths do not agree", ErrDamaged)
	}
	if err := f.keep(entry + len(a.Name) + len(a.Media)); err != nil {
		return err
	}
	a.Size, a.crcAt = int64(n), a.Offset+int64(n)
	f.Attachments = append(f.Attachments, a)
	return nil
}

// maxName is the maximum total length in bytes of the name and the media type of an attachment.
const maxName = 64 << 10
