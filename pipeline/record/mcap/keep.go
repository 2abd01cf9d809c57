// SPDX-License-Identifier: Apache-2.0

package mcap

import "slices"

// Chunks is how many chunks the index has so far.
func (w *Writer) Chunks() int { return len(w.chunks) }

// Keep forgets the chunks that do not begin at one of the bytes from to, but not including, to.
func (w *Writer) Keep(from, to uint64) {
	w.chunks = slices.DeleteFunc(w.chunks, func(c chunkIndex) bool { return c.at < from || c.at >= to })
}

// Move says that the chunks are so many bytes further back in the file, or, with a negative number, further ahead.
func (w *Writer) Move(by int64) {
	w.Offset += uint64(by)
	for i := range w.chunks {
		w.chunks[i].move(by)
	}
}

// Adopt takes over the chunks of another writer that begin at byte from or behind it. In w's file they are by bytes further back.
func (w *Writer) Adopt(other *Writer, from uint64, by int64) {
	for _, c := range other.chunks {
		if c.at >= from {
			c.indexes = slices.Clone(c.indexes)
			c.move(by)
			w.chunks = append(w.chunks, c)
		}
	}
}

// move adds by, which may be negative, to the chunk's places in the file.
func (c *chunkIndex) move(by int64) {
	c.at += uint64(by)
	for i := range c.indexes {
		c.indexes[i].at += uint64(by)
	}
}

// AppendGap appends the head of a record of n bytes in all, at least 9, that readers skip, whatever its contents are.
func AppendGap(b []byte, n int64) []byte {
	return le.AppendUint64(append(b, byte(OpPadding)), uint64(n-recordHead))
}
