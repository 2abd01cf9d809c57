// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"hash/crc32"
	"maps"
	"slices"
)

// End appends the end of the data, the summary, and the end of the file. There is no CRC of the data section as a
// whole, because each chunk and each attachment has its own.
func (w *Writer) End(b []byte) []byte {
	from := len(b)
	b, at := beginRecord(b, OpDataEnd)
	b = endRecord(le.AppendUint32(b, 0), at)
	summary := len(b)
	offset := func() uint64 { return w.Offset + uint64(len(b)-from) }
	start := offset()
	var offsets []byte
	for _, g := range w.groups() {
		begun, begunAt := offset(), len(b)
		if b = g.append(b); len(b) == begunAt {
			continue
		}
		var at int
		offsets, at = beginRecord(offsets, OpSummaryOffset)
		offsets = append(offsets, byte(g.op))
		offsets = endRecord(le.AppendUint64(le.AppendUint64(offsets, begun), uint64(len(b)-begunAt)), at)
	}
	behind := offset()
	b = append(b, offsets...)
	b, at = beginRecord(b, OpFooter)
	b = le.AppendUint64(le.AppendUint64(b, start), behind)
	le.PutUint64(b[at+1:], 8+8+4) // set here because the CRC covers it
	b = le.AppendUint32(b, crc32.ChecksumIEEE(b[summary:]))
	b = append(b, Magic...)
	w.Offset = offset()
	return b
}

// group contains the records of one kind in the summary.
type group struct {
	op     Opcode
	append func(b []byte) []byte
}

func (w *Writer) groups() []group {
	return []group{
		{OpSchema, func(b []byte) []byte {
			for i := range w.schemas {
				b = w.schemas[i].append(b)
			}
			return b
		}},
		{OpChannel, func(b []byte) []byte {
			for i := range w.channels {
				b = w.channels[i].append(b)
			}
			return b
		}},
		{OpStatistics, w.statistics},
		{OpChunkIndex, func(b []byte) []byte {
			for i := range w.chunks {
				b = w.chunks[i].append(b)
			}
			return b
		}},
		{OpAttachmentIndex, func(b []byte) []byte {
			for i := range w.attached {
				b = w.attached[i].append(b)
			}
			return b
		}},
		{OpMetadataIndex, func(b []byte) []byte {
			for _, m := range w.metadata {
				var at int
				b, at = beginRecord(b, OpMetadataIndex)
				b = endRecord(text(le.AppendUint64(le.AppendUint64(b, m.at), m.length), m.name), at)
			}
			return b
		}},
	}
}

func (w *Writer) statistics(b []byte) []byte {
	counts := map[uint16]uint64{}
	for i := range w.channels {
		counts[w.channels[i].ID] = 0
	}
	var messages, first, last uint64
	for i := range w.chunks {
		c := &w.chunks[i]
		if i == 0 {
			first = c.first
		}
		first, last = min(first, c.first), max(last, c.last)
		for _, x := range c.indexes {
			counts[x.channel] += x.count
			messages += x.count
		}
	}
	b, at := beginRecord(b, OpStatistics)
	b = le.AppendUint64(b, messages)
	b = le.AppendUint16(b, uint16(len(w.schemas)))
	for _, n := range []int{len(w.channels), len(w.attached), len(w.metadata), len(w.chunks)} {
		b = le.AppendUint32(b, uint32(n))
	}
	b = le.AppendUint64(le.AppendUint64(b, first), last)
	b = le.AppendUint32(b, uint32(10*len(counts)))
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		b = le.AppendUint64(le.AppendUint16(b, id), counts[id])
	}
	return endRecord(b, at)
}

func (c *chunkIndex) append(b []byte) []byte {
	b, at := beginRecord(b, OpChunkIndex)
	for _, n := range []uint64{c.first, c.last, c.at, c.length} {
		b = le.AppendUint64(b, n)
	}
	b = le.AppendUint32(b, uint32(10*len(c.indexes)))
	for _, x := range c.indexes {
		b = le.AppendUint64(le.AppendUint16(b, x.channel), x.at)
	}
	b = text(le.AppendUint64(b, c.indexLength), "")
	return endRecord(le.AppendUint64(le.AppendUint64(b, c.size), c.size), at)
}

func (a *attachmentIndex) append(b []byte) []byte {
	b, at := beginRecord(b, OpAttachmentIndex)
	for _, n := range []uint64{a.at, a.length, a.Log, a.Created, a.size} {
		b = le.AppendUint64(b, n)
	}
	return endRecord(text(text(b, a.Name), a.Media), at)
}
