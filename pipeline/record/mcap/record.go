// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Magic is the text that begins and ends a file.
const Magic = "\x89MCAP0\r\n"

// An Opcode is the type of a record.
type Opcode byte

// The opcodes of the specification ("Records"), and the private one of padding records, which readers skip.
const (
	OpHeader          Opcode = 0x01
	OpFooter          Opcode = 0x02
	OpSchema          Opcode = 0x03
	OpChannel         Opcode = 0x04
	OpMessage         Opcode = 0x05
	OpChunk           Opcode = 0x06
	OpMessageIndex    Opcode = 0x07
	OpChunkIndex      Opcode = 0x08
	OpAttachment      Opcode = 0x09
	OpAttachmentIndex Opcode = 0x0a
	OpStatistics      Opcode = 0x0b
	OpMetadata        Opcode = 0x0c
	OpMetadataIndex   Opcode = 0x0d
	OpSummaryOffset   Opcode = 0x0e
	OpDataEnd         Opcode = 0x0f
	OpPadding         Opcode = 0x80
)

// recordHead is the number of bytes of the opcode and the length, which precede each record's contents.
const recordHead = 1 + 8

// messageHead is the number of bytes of a message record before its data.
const messageHead = recordHead + 2 + 4 + 8 + 8

// chunkHead is the number of bytes of an uncompressed chunk before its records.
const chunkHead = recordHead + 8 + 8 + 8 + 4 + 4 + 8

var le = binary.LittleEndian

// A Schema describes the encoding of a channel's messages. ID must not be 0.
type Schema struct {
	ID             uint16
	Name, Encoding string
	Data           []byte
}

// A Channel describes the messages of one topic. Schema 0 means that there is no schema.
type Channel struct {
	ID, Schema      uint16
	Topic, Encoding string
	Metadata        map[string]string
}

// A Message is one message, without its data. Times are in ns since 1970.
type Message struct {
	Channel      uint16
	Sequence     uint32
	Log, Publish uint64
}

// An Attachment is a file within the file. Times are in ns since 1970.
type Attachment struct {
	Log, Created uint64
	Name, Media  string
	Data         []byte
}

// beginRecord appends the header of a record to b, and returns its offset in b, which endRecord needs to set the
// length.
func beginRecord(b []byte, op Opcode) (_ []byte, at int) {
	return append(b, byte(op), 0, 0, 0, 0, 0, 0, 0, 0), len(b)
}

// endRecord sets the length of the record that begins at b[at] and reaches to the end of b, and returns b.
func endRecord(b []byte, at int) []byte {
	le.PutUint64(b[at+1:], uint64(len(b)-at-recordHead))
	return b
}

func text(b []byte, s string) []byte { return append(le.AppendUint32(b, uint32(len(s))), s...) }

func texts(b []byte, m map[string]string) []byte {
	at := len(b)
	b = le.AppendUint32(b, 0)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = text(text(b, k), m[k])
	}
	le.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// AppendHeader appends the first record, which contains the file's profile and the name of the writing library.
func AppendHeader(b []byte, profile, library string) []byte {
	b, at := beginRecord(b, OpHeader)
	return endRecord(text(text(b, profile), library), at)
}

func (s *Schema) append(b []byte) []byte {
	b, at := beginRecord(b, OpSchema)
	b = text(text(le.AppendUint16(b, s.ID), s.Name), s.Encoding)
	return endRecord(append(le.AppendUint32(b, uint32(len(s.Data))), s.Data...), at)
}

func (c *Channel) append(b []byte) []byte {
	b, at := beginRecord(b, OpChannel)
	b = le.AppendUint16(le.AppendUint16(b, c.ID), c.Schema)
	return endRecord(texts(text(text(b, c.Topic), c.Encoding), c.Metadata), at)
}

// appendHead appends a message record without its data, of which size bytes follow.
func (m *Message) appendHead(b []byte, size int) []byte {
	b = append(b, byte(OpMessage))
	b = le.AppendUint64(b, uint64(messageHead-recordHead+size))
	b = le.AppendUint32(le.AppendUint16(b, m.Channel), m.Sequence)
	return le.AppendUint64(le.AppendUint64(b, m.Log), m.Publish)
}

// LeastPadding is the number of bytes of an empty padding record.
const LeastPadding = recordHead

// PaddingHead returns the beginning of a padding record of n bytes in total, at least LeastPadding. The rest of the record
// may be anything.
func PaddingHead(n int64) []byte {
	return le.AppendUint64([]byte{byte(OpPadding)}, uint64(n-recordHead))
}

// AppendPadding appends a record of n bytes in total, at least 9, that readers skip.
func AppendPadding(b []byte, n int) []byte {
	b, at := beginRecord(b, OpPadding)
	for range n - recordHead {
		b = append(b, 0)
	}
	return endRecord(b, at)
}

// PadTo returns the number of padding bytes after size bytes so that they end at a multiple of page: 0, or at least the
// minimum size of a padding record.
func PadTo(size, page int) int {
	n := (page - size%page) % page
	if n > 0 && n < LeastPadding {
		n += page
	}
	return n
}
