// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/tegracast/tegracast/pipeline/crc"
)

// A Writer lays out a file's records, and keeps the data for its index. The bytes that its methods lay out must be
// written to the file one after another, without gaps; Offset is where the next ones begin.
type Writer struct {
	Offset uint64

	schemas  []Schema
	channels []Channel
	chunks   []chunkIndex
	attached []attachmentIndex
	metadata []metadataIndex
}

type chunkIndex struct {
	first, last, at, length, size uint64
	indexes                       []messageIndex // one for each channel
	indexLength                   uint64
}

// messageIndex describes the message index of a channel: its offset, and its number of messages.
type messageIndex struct {
	channel   uint16
	at, count uint64
}

type attachmentIndex struct {
	Attachment
	at, length, size uint64
}

type metadataIndex struct {
	name       string
	at, length uint64
}

// NewWriter begins a file: b contains magic, header, schemas and channels, padded to a page. It returns an error if a
// channel is invalid.
func NewWriter(profile, library string, page int, schemas []Schema, channels []Channel) (w *Writer, b []byte, err error) {
	w = &Writer{schemas: schemas, channels: channels}
	b = AppendHeader([]byte(Magic), profile, library)
	known, taken := map[uint16]bool{0: true}, map[uint16]bool{}
	for i := range schemas {
		known[schemas[i].ID] = true
		b = schemas[i].append(b)
	}
	for i := range channels {
		c := &channels[i]
		if taken[c.ID] || !known[c.Schema] {
			return nil, nil, fmt.Errorf("mcap: channel %d, %s: its number is taken, or there is no schema %d", c.ID, c.Topic, c.Schema)
		}
		taken[c.ID] = true
		b = c.append(b)
	}
	if n := PadTo(len(b), page); n > 0 {
		b = AppendPadding(b, n)
	}
	w.Offset = uint64(len(b))
	return w, b, nil
}

// AppendAttachment appends an attachment.
func (w *Writer) AppendAttachment(b []byte, a Attachment) []byte {
	from := len(b)
	b, at := beginRecord(b, OpAttachment)
	b = text(text(le.AppendUint64(le.AppendUint64(b, a.Log), a.Created), a.Name), a.Media)
	b = append(le.AppendUint64(b, uint64(len(a.Data))), a.Data...)
	b = endRecord(le.AppendUint32(b, crc32.ChecksumIEEE(b[from+recordHead:])), at)
	i := attachmentIndex{Attachment: a, at: w.Offset, length: uint64(len(b) - from), size: uint64(len(a.Data))}
	i.Data = nil
	w.attached = append(w.attached, i)
	w.Offset += i.length
	return b
}

// AppendMetadata appends a map of strings as metadata.
func (w *Writer) AppendMetadata(b []byte, name string, m map[string]string) []byte {
	from := len(b)
	b, at := beginRecord(b, OpMetadata)
	b = endRecord(texts(text(b, name), m), at)
	w.metadata = append(w.metadata, metadataIndex{name, w.Offset, uint64(len(b) - from)})
	w.Offset += uint64(len(b) - from)
	return b
}

// Pad appends padding so that the file ends at a multiple of page.
func (w *Writer) Pad(b []byte, page int) []byte {
	n := PadTo(int(w.Offset%uint64(page)), page)
	if n > 0 {
		b = AppendPadding(b, n)
	}
	w.Offset += uint64(n)
	return b
}

// ErrHead means that the header of a message does not fit into a page.
var ErrHead = errors.New("mcap: the head of the message does not fit into a page")

// A Part is a message with its data.
type Part struct {
	Message
	Data []byte
}

// Frame lays out a chunk of one large message followed by small ones. The data of the large one consist of prefix and
// body, and body is not copied: head, body[:whole] and tail must be written to the file one after another. head and
// body[:whole] consist of whole pages, so that they can be written without a copy if body begins at a page. head and
// tail are appended to the given slices. The error wraps ErrHead.
func (w *Writer) Frame(head, tail []byte, page int, m Message, prefix, body []byte, small []Part) (_, _ []byte, whole int, err error) {
	from, behind := len(head), len(tail)
	whole = len(body) / page * page
	padding := page - chunkHead - messageHead - len(prefix)
	if padding != 0 && padding < LeastPadding {
		return head, tail, 0, fmt.Errorf("%w: %d bytes of %d", ErrHead, page-padding, page)
	}
	chunk := chunkIndex{at: w.Offset, first: m.Log, last: m.Log}
	index := map[uint16][]messageAt{}
	head = append(head, make([]byte, chunkHead)...) // filled in below
	if padding > 0 {
		head = AppendPadding(head, padding)
	}
	index[m.Channel] = append(index[m.Channel], messageAt{m.Log, uint64(len(head) - from - chunkHead)})
	head = append(m.appendHead(head, len(prefix)+len(body)), prefix...)
	tail = chunk.messages(append(tail, body[whole:]...), page+whole-behind-chunkHead, small, index)
	records := head[from+chunkHead:]
	sum := crc.IEEE(crc.IEEE(crc.IEEE(0, records), body[:whole]), tail[behind:])
	chunk.size = uint64(len(records) + whole + len(tail) - behind)
	chunk.writeHeader(head[from:], sum)
	return head, w.Pad(w.appendIndexes(tail, &chunk, index), page), whole, nil
}

// Messages appends a chunk of small messages, at least one, and pads it to a page.
func (w *Writer) Messages(b []byte, page int, list ...Part) []byte {
	from := len(b)
	chunk := chunkIndex{at: w.Offset, first: list[0].Log, last: list[0].Log}
	index := map[uint16][]messageAt{}
	b = chunk.messages(append(b, make([]byte, chunkHead)...), -from-chunkHead, list, index)
	records := b[from+chunkHead:]
	chunk.size = uint64(len(records))
	chunk.writeHeader(b[from:], crc32.ChecksumIEEE(records))
	return w.Pad(w.appendIndexes(b, &chunk, index), page)
}

// messages appends messages of the chunk, and records them in index. from is added to their offsets in b.
func (c *chunkIndex) messages(b []byte, from int, list []Part, index map[uint16][]messageAt) []byte {
	for i := range list {
		p := &list[i]
		index[p.Channel] = append(index[p.Channel], messageAt{p.Log, uint64(from + len(b))})
		b = append(p.appendHead(b, len(p.Data)), p.Data...)
		c.first, c.last = min(c.first, p.Log), max(c.last, p.Log)
	}
	return b
}

type messageAt struct{ log, offset uint64 }

// writeHeader writes the chunk's header to b, and sets the chunk's length.
func (c *chunkIndex) writeHeader(b []byte, crc uint32) {
	c.length = chunkHead + c.size
	b[0] = byte(OpChunk)
	le.PutUint64(b[1:], c.length-recordHead)
	le.PutUint64(b[9:], c.first)
	le.PutUint64(b[17:], c.last)
	le.PutUint64(b[25:], c.size)
	le.PutUint32(b[33:], crc)
	le.PutUint32(b[37:], 0) // no compression
	le.PutUint64(b[41:], c.size)
}

// appendIndexes appends the message indexes of a chunk, which follow it, and records its position.
func (w *Writer) appendIndexes(b []byte, c *chunkIndex, index map[uint16][]messageAt) []byte {
	b = c.appendIndexes(b, c.at+c.length, index)
	w.chunks = append(w.chunks, *c)
	w.Offset += c.length + c.indexLength
	return b
}

// appendIndexes appends the chunk's message indexes, which begin at byte begin of the file.
func (c *chunkIndex) appendIndexes(b []byte, begin uint64, index map[uint16][]messageAt) []byte {
	from := len(b)
	for _, id := range slices.Sorted(maps.Keys(index)) {
		c.indexes = append(c.indexes, messageIndex{id, begin + uint64(len(b)-from), uint64(len(index[id]))})
		var at int
		b, at = beginRecord(b, OpMessageIndex)
		b = le.AppendUint32(le.AppendUint16(b, id), uint32(16*len(index[id])))
		for _, m := range index[id] {
			b = le.AppendUint64(le.AppendUint64(b, m.log), m.offset)
		}
		b = endRecord(b, at)
	}
	c.indexLength = uint64(len(b) - from)
	return b
}
