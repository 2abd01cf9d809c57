// SPDX-License-Identifier: Apache-2.0

package mcap

import "slices"

// Chunks returns the number of chunks in the index so far.
func (w *Writer) Chunks() int { return len(w.chunks) }

// Keep removes from the index all chunks that do not begin in the byte range from (inclusive) to (exclusive).
func (w *Writer) Keep(from, to uint64) {
	w.chunks = slices.DeleteFunc(w.chunks, func(c chunkIndex) bool { return c.at < from || c.at >= to })
}

// Move adds by, which may be negative, to Offset and to the offsets of all chunks.
func (w *Writer) Move(by int64) {
	w.Offset += uint64(by)
	for i := range w.chunks {
		w.chunks[i].move(by)
	}
}

// Adopt adds those chunks of other that begin at or after the offset from. It adds by, which may be negative, to their
// offsets, because they are elsewhere in w's file.
func (w *Writer) Adopt(other *Writer, from uint64, by int64) {
	for _, c := range other.chunks {
		if c.at >= from {
			c.indexes = slices.Clone(c.indexes)
			c.move(by)
			w.chunks = append(w.chunks, c)
		}
	}
}

// move adds by, which may be negative, to the chunk's offsets.
func (c *chunkIndex) move(by int64) {
	c.at += uint64(by)
	for i := range c.indexes {
		c.indexes[i].at += uint64(by)
	}
}

// AppendGap appends the header of a record of n bytes in total, at least 9, that readers skip whatever its contents
// are.
func AppendGap(b []byte, n int64) []byte {
	return le.AppendUint64(append(b, byte(OpPadding)), uint64(n-recordHead))
}
