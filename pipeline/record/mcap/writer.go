// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
)

// A Writer lays out a file's records, and keeps what its index needs. What its methods append goes to the file one after the
// other, without a gap: Offset is where the next one begins.
type Writer struct {
	Offset uint64

	schemas  []Schema
	channels []Channel
	chunks   []chunkIndex
	attached []attachmentIndex
	metadata []metadataIndex
	counts   map[uint16]uint64
	first    uint64 // log time of the first message; of none, 0
	last     uint64
	messages uint64
}

type chunkIndex struct {
	first, last, at, length, size uint64
	indexes                       map[uint16]uint64 // offsets of message indexes, by channel
	indexLength                   uint64
}

type attachmentIndex struct {
	Attachment
	at, length, size uint64
}

type metadataIndex struct {
	name       string
	at, length uint64
}

// NewWriter begins a file: b is magic, header, schemas and channels, padded to a page. Errors say what is wrong with a channel.
func NewWriter(profile, library string, page int, schemas []Schema, channels []Channel) (w *Writer, b []byte, err error) {
	w = &Writer{schemas: schemas, channels: channels, counts: map[uint16]uint64{}}
	b = AppendHeader([]byte(Magic), profile, library)
	known := map[uint16]bool{0: true}
	for i := range schemas {
		known[schemas[i].ID] = true
		b = schemas[i].append(b)
	}
	for i := range channels {
		c := &channels[i]
		if _, twice := w.counts[c.ID]; twice || !known[c.Schema] {
			return nil, nil, fmt.Errorf("mcap: channel %d, %s: its number is taken, or there is no schema %d", c.ID, c.Topic, c.Schema)
		}
		w.counts[c.ID] = 0
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
	b, at := begin(b, OpAttachment)
	b = text(text(le.AppendUint64(le.AppendUint64(b, a.Log), a.Created), a.Name), a.Media)
	b = append(le.AppendUint64(b, uint64(len(a.Data))), a.Data...)
	b = end(le.AppendUint32(b, crc32.ChecksumIEEE(b[from+recordHead:])), at)
	i := attachmentIndex{Attachment: a, at: w.Offset, length: uint64(len(b) - from), size: uint64(len(a.Data))}
	i.Data = nil
	w.attached = append(w.attached, i)
	w.Offset += i.length
	return b
}

// AppendMetadata appends a table of texts.
func (w *Writer) AppendMetadata(b []byte, name string, m map[string]string) []byte {
	from := len(b)
	b, at := begin(b, OpMetadata)
	b = end(texts(text(b, name), m), at)
	w.metadata = append(w.metadata, metadataIndex{name, w.Offset, uint64(len(b) - from)})
	w.Offset += uint64(len(b) - from)
	return b
}

// Pad appends padding up to a multiple of page, in the file.
func (w *Writer) Pad(b []byte, page int) []byte {
	n := PadTo(int(w.Offset%uint64(page)), page)
	if n > 0 {
		b = AppendPadding(b, n)
	}
	w.Offset += uint64(n)
	return b
}

// ErrHead is that of a message whose head does not fit into a page.
var ErrHead = errors.New("mcap: the head of the message does not fit into a page")

// A Part is a message with its data.
type Part struct {
	Message
	Data []byte
}

// Frame lays out a chunk of one large message and small ones behind it. The large one's data are prefix, and then body, which
// stays where it is: the file gets head, body[:whole] and tail, one after the other, of which all but the last are whole
// pages, so that they can be written without a copy if body begins at a page. head and tail are appended to what is given.
func (w *Writer) Frame(head, tail []byte, page int, m Message, prefix, body []byte, small []Part) (_, _ []byte, whole int, err error) {
	from, behind := len(head), len(tail)
	whole = len(body) / page * page
	padding := page - chunkHead - messageHead - len(prefix)
	if padding != 0 && padding < leastPadding {
		return head, tail, 0, fmt.Errorf("%w: %d bytes of %d", ErrHead, page-padding, page)
	}
	chunk := chunkIndex{at: w.Offset, first: m.Log, last: m.Log, indexes: map[uint16]uint64{}}
	index := map[uint16][]messageAt{}
	head = append(head, make([]byte, chunkHead)...) // filled in below
	if padding > 0 {
		head = AppendPadding(head, padding)
	}
	index[m.Channel] = append(index[m.Channel], messageAt{m.Log, uint64(len(head) - from - chunkHead)})
	head = append(m.appendHead(head, len(prefix)+len(body)), prefix...)
	tail = append(tail, body[whole:]...)
	for i := range small {
		p := &small[i]
		index[p.Channel] = append(index[p.Channel], messageAt{p.Log, uint64(page + whole + len(tail) - behind - chunkHead)})
		tail = append(p.appendHead(tail, len(p.Data)), p.Data...)
		chunk.first, chunk.last = min(chunk.first, p.Log), max(chunk.last, p.Log)
	}
	records := head[from+chunkHead:]
	crc := crc32.Update(crc32.ChecksumIEEE(records), crc32.IEEETable, body[:whole])
	crc = crc32.Update(crc, crc32.IEEETable, tail[behind:])
	chunk.size = uint64(len(records) + whole + len(tail) - behind)
	chunk.length = chunkHead + chunk.size
	chunk.put(head[from:], crc)
	tail = w.indexes(tail, &chunk, index)
	w.add(&chunk, index)
	return head, w.Pad(tail, page), whole, nil
}

type messageAt struct{ log, offset uint64 }

// put writes the chunk's head.
func (c *chunkIndex) put(b []byte, crc uint32) {
	b[0] = byte(OpChunk)
	le.PutUint64(b[1:], c.length-recordHead)
	le.PutUint64(b[9:], c.first)
	le.PutUint64(b[17:], c.last)
	le.PutUint64(b[25:], c.size)
	le.PutUint32(b[33:], crc)
	le.PutUint32(b[37:], 0) // no compression
	le.PutUint64(b[41:], c.size)
}

// indexes appends the message indexes of a chunk, which follow it.
func (w *Writer) indexes(b []byte, c *chunkIndex, index map[uint16][]messageAt) []byte {
	from := len(b)
	for _, id := range slices.Sorted(maps.Keys(index)) {
		c.indexes[id] = c.at + c.length + uint64(len(b)-from)
		var at int
		b, at = begin(b, OpMessageIndex)
		b = le.AppendUint32(le.AppendUint16(b, id), uint32(16*len(index[id])))
		for _, m := range index[id] {
			b = le.AppendUint64(le.AppendUint64(b, m.log), m.offset)
		}
		b = end(b, at)
	}
	c.indexLength = uint64(len(b) - from)
	return b
}

// add counts a chunk's messages.
func (w *Writer) add(c *chunkIndex, index map[uint16][]messageAt) {
	if w.messages == 0 {
		w.first, w.last = c.first, c.last
	}
	w.first, w.last = min(w.first, c.first), max(w.last, c.last)
	for id, list := range index {
		w.counts[id] += uint64(len(list))
		w.messages += uint64(len(list))
	}
	w.chunks = append(w.chunks, *c)
	w.Offset += c.length + c.indexLength
}
